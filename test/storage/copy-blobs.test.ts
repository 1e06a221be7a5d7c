import { expect, it } from "vitest";
import { fileBlobs } from "../../src/storage/blobs/file-blobs.ts";
import { s3Blobs } from "../../src/storage/blobs/s3.ts";
import { copyBlobs } from "../../src/storage/copy.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { fakeBucket } from "../support/s3/buckets.ts";
import { tempDir } from "../support/temp-dir.ts";

/** Ten files of a data directory, a thumbnail and a draft; and a bucket. */
async function sides() {
  const from = fileBlobs(await tempDir());
  for (let i = 0; i < 10; i++) await from.put(`outputs/b/${i}`, Buffer.alloc(1000 * i, i));
  await from.put("thumbnails/b/x", Buffer.from("small"));
  const draft = from.draft();
  await draft.write(Buffer.from("draft"));
  await draft.finish();
  const { fake, settings } = await fakeBucket({ clock: new InstantClock() });
  return { from, fake, to: s3Blobs(settings) };
}

it("what was copied is not copied again, unless it differs", async () => {
  const { from, fake, to } = await sides();
  fake.fail(
    { refuse: { status: 403, code: "AccessDenied" } },
    { when: ({ key }) => key.endsWith("/7"), times: 1 },
  );
  await expect(copyBlobs(from, to, () => {})).rejects.toThrow("AccessDenied");
  await to.put("outputs/b/3", Buffer.alloc(3000, 9));
  const puts = fake.requests.filter(({ method, status }) => method === "PUT" && status === 200).length;
  const { files, known } = await copyBlobs(from, to, () => {});
  expect(files).toBe(10);
  expect(known).toBeGreaterThan(0);
  const all = fake.requests.filter(({ method, status }) => method === "PUT" && status === 200).length;
  expect(all - puts).toBe(10 - known);
  expect(await to.read("outputs/b/3")).toEqual(Buffer.alloc(3000, 3));
});

it("a copy that differs from its original is an error", async () => {
  const { from, fake, to } = await sides();
  const put = fake.objects.set.bind(fake.objects);
  fake.objects.set = (key, object) =>
    put(key, key.endsWith("/5") ? { ...object, bytes: Buffer.alloc(5000), sha256: undefined } : object);
  await expect(copyBlobs(from, to, () => {})).rejects.toThrow("outputs/b/5 differs");
});
