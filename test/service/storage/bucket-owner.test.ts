import { cp, rm } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { checkStorage } from "../../../src/cli/commands/doctor.ts";
import { type BlobsPlace, LOCAL_STORAGE, type StoragePlaces } from "../../../src/config/storage-places.ts";
import { DATA_FILES } from "../../../src/contract/data-directory.ts";
import type { ImgbatchError } from "../../../src/contract/errors.ts";
import { openAdmin } from "../../../src/service/admin.ts";
import { claimBucket, moveStorage, openStorage } from "../../../src/service/storage/open-storage.ts";
import { FakeProvider } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { hasPostgres, newDatabase } from "../../support/postgres.ts";
import { fakeBucket } from "../../support/s3/buckets.ts";
import { items, MODEL, startServiceOn, startTestService } from "../../support/service.ts";
import { tempDir } from "../../support/temp-dir.ts";

const OWNER = "imgbatch-database";

async function bucket(database: StoragePlaces["database"] = LOCAL_STORAGE.database) {
  const { fake, settings } = await fakeBucket();
  const { scratchDirectory: _, ...place } = settings;
  const at = (prefix: string): StoragePlaces => ({
    database,
    blobs: { kind: "s3", ...place, prefix, name: `s3://${place.bucket}/${prefix}` } as BlobsPlace,
  });
  return { fake, at, storage: at("imgbatch") };
}

/** The error of a start that is refused. */
async function refusal(dataDirectory: string, storage: StoragePlaces): Promise<ImgbatchError> {
  return startServiceOn(storage, { dataDirectory }).then(
    () => expect.fail("the service has started"),
    (error) => error,
  );
}

/** A directory whose service has made a batch with its images in the bucket. */
async function usedDirectory(storage: StoragePlaces) {
  const data = await tempDir();
  const service = await startServiceOn(storage, { dataDirectory: data });
  const ask = async (path: string, init: RequestInit = {}) => {
    const headers = {
      authorization: `Bearer ${service.credentials?.api_key}`,
      "content-type": "application/json",
    };
    return (await fetch(`${service.url}/v1/images/batches${path}`, { ...init, headers })).json();
  };
  const batch = { model: MODEL, task_name: "t", items: items(2) };
  const { id } = await ask("", { method: "POST", body: JSON.stringify(batch) });
  await expect.poll(async () => (await ask(`/${id}`)).status, { timeout: 20_000 }).toBe("completed");
  await service.close(0);
  return data;
}

const object = (text: string) => ({
  bytes: Buffer.from(text),
  etag: '"x"',
  modifiedMs: 0,
  contentType: "text/plain",
  sha256: undefined,
});

it("[BUCKET-1] another database is refused before it removes anything; the repair that is told works", async () => {
  const { fake, storage } = await bucket();
  await usedDirectory(storage);
  for (const key of ["inputs/b/1", "files/f", "answers/a"]) fake.objects.set(`imgbatch/${key}`, object(key));
  const before = [...fake.objects.keys()];
  const other = await tempDir();
  const { code, message, advice } = await refusal(other, storage);
  expect([code, message]).toEqual([
    "INVALID_CONFIG",
    "s3://images/imgbatch belongs to another database: the service would remove its files.",
  ]);
  const admin = await openAdmin({ directory: other, storage });
  await expect(admin.check()).rejects.toMatchObject({ code: "INVALID_CONFIG", message });
  await admin.close();
  expect(await checkStorage(storage, other)).toMatchObject([{ check: "bucket", state: "fail", message }]);
  expect([...fake.objects.keys()]).toEqual(before);
  const [, text = "", key = ""] = /echo (.+) \| aws s3 cp - s3:\/\/images\/(\S+)/.exec(advice ?? "") ?? [];
  expect(key).toBe(`imgbatch/${OWNER}`);
  fake.objects.set(key, object(`${text}\n`));
  await startServiceOn(storage, { dataDirectory: other });
});

it("a database with batches is not brought to a bucket without them", async () => {
  const { fake, storage, at } = await bucket();
  const local = await startTestService({ providers: [new FakeProvider()] });
  await local.submit({ model: MODEL, items: items(1) });
  await local.close(0);
  const refused = await refusal(local.data, storage);
  expect(refused.message).toBe("s3://images/imgbatch does not hold the data of this database.");
  expect(refused.advice).toContain("imgbatch admin move");
  const data = await usedDirectory(storage);
  expect(await refusal(data, at("typo"))).toMatchObject({
    code: "INVALID_CONFIG",
    message: "s3://images/typo does not hold the data of this database.",
  });
  fake.objects.set("foreign/outputs/other/x.png", object("x"));
  expect(await refusal(await tempDir(), at("foreign"))).toMatchObject({ code: "INVALID_CONFIG" });
});

it("restores of the database and of the bucket go on, also without the object that names the owner", async () => {
  const { fake, storage, at } = await bucket();
  const data = await usedDirectory(storage);
  const restored = join(await tempDir(), "restored");
  await cp(data, restored, { recursive: true });
  await (await startServiceOn(storage, { dataDirectory: restored })).close(0);
  fake.objects.delete(`imgbatch/${OWNER}`);
  await (await startServiceOn(storage, { dataDirectory: restored })).close(0);
  expect(fake.objects.has(`imgbatch/${OWNER}`)).toBe(true);
  for (const [key, value] of [...fake.objects]) fake.objects.set(key.replace("imgbatch/", "copy/"), value);
  await startServiceOn(at("copy"), { dataDirectory: restored });
});

it("processes that start at once on a new bucket share it", async () => {
  const { storage } = await bucket();
  const opened = await openStorage(storage, { directory: await tempDir() });
  onTestFinished(() => opened.close());
  await Promise.all([1, 2, 3].map(() => claimBucket(storage, opened)));
  await claimBucket(storage, opened);
});

/** How many of two new databases get one bucket, on which they begin at the same moment. */
async function claimsAtOnce({ fake, storage }: Awaited<ReturnType<typeof bucket>>): Promise<number> {
  const found = gate();
  let looks = 0;
  const claims = [1, 2].map(async () => {
    const opened = await openStorage(storage, { directory: await tempDir() });
    onTestFinished(() => opened.close());
    const putNew: typeof opened.blobs.putNew = async (...put) => {
      if (++looks === 2) found.open();
      await found.promise;
      return opened.blobs.putNew(...put);
    };
    return claimBucket(storage, { ...opened, blobs: { ...opened.blobs, putNew } });
  });
  const ends = await Promise.allSettled(claims);
  expect(fake.objects.size).toBe(1);
  return ends.filter(({ status }) => status === "fulfilled").length;
}

it("one of two databases that begin on it at the same moment gets a bucket", async () => {
  expect(await claimsAtOnce(await bucket())).toBe(1);
});

it("a bucket is claimed also where the server cannot tell what is new", async () => {
  const own = await bucket();
  const when = ({ headers }: { headers: object }) => "if-none-match" in headers;
  own.fake.fail({ refuse: { status: 501, code: "NotImplemented" } }, { times: 2, when });
  expect(await claimsAtOnce(own)).toBeGreaterThanOrEqual(1);
});

it("[BUCKET-1] a bucket that cannot be used ends the start with its reason", async () => {
  const { fake, storage } = await bucket();
  fake.fail({ refuse: { status: 403, code: "AccessDenied" } }, { times: 10 });
  const { code, message } = await refusal(await tempDir(), storage);
  expect([code, message]).toEqual([
    "STORAGE_FAILED",
    expect.stringMatching(/^s3:\/\/images\/imgbatch cannot be used: .*AccessDenied/),
  ]);
});

it("[BUCKET-1] a bucket that does not exist is called missing, with how to make it, by the start and by doctor", async () => {
  const { fake, storage } = await bucket();
  const missing = {
    ...storage,
    blobs: { ...storage.blobs, bucket: "imagse", name: "s3://imagse/imgbatch" } as BlobsPlace,
  };
  const message = `s3://imagse/imgbatch: there is no bucket imagse at ${fake.url}.`;
  const create = `create it: aws s3 mb s3://imagse --region us-east-1 --endpoint-url ${fake.url}`;
  const error = await refusal(await tempDir(), missing);
  expect(error).toMatchObject({ code: "STORAGE_FAILED", message, advice: expect.stringContaining(create) });
  const found = {
    check: "bucket",
    state: "fail",
    exit: "saving",
    message,
    advice: expect.stringContaining(create),
  };
  expect(await checkStorage(missing, await tempDir())).toMatchObject([found]);
});

describe.skipIf(!hasPostgres)("the bucket of a moved data directory", () => {
  async function moving() {
    const local = await startTestService({ providers: [new FakeProvider()] });
    const { id } = await local.submit({ model: MODEL, items: items(1) });
    await local.until(id);
    await local.close(0);
    const url = await newDatabase();
    const { fake, storage } = await bucket({ kind: "postgres", url, name: "postgres://db/imgbatch" });
    return { data: local.data, fake, storage };
  }

  it("belongs to nobody during the move, and to the new database alone after it", async () => {
    const { data, fake, storage } = await moving();
    const isOutput = ({ method, key }: { method: string; key: string }) =>
      method === "PUT" && key.includes("/outputs/");
    fake.fail({ refuse: { status: 403, code: "AccessDenied" } }, { when: isOutput });
    await expect(moveStorage({ directory: data, to: storage })).rejects.toThrow();
    const copy = join(await tempDir(), "copy");
    await cp(data, copy, { recursive: true });
    await rm(join(copy, DATA_FILES.moved));
    const filesOnly = { ...storage, database: LOCAL_STORAGE.database };
    for (const [directory, places] of [
      [await tempDir(), storage],
      [copy, filesOnly],
    ] as const)
      expect((await refusal(directory, places)).message).toBe(
        "`imgbatch admin move` has begun to fill s3://images/imgbatch.",
      );
    await moveStorage({ directory: data, to: storage });
    expect((await refusal(copy, filesOnly)).message).toContain("belongs to another database");
    await (await startServiceOn(storage)).close(0);
  });

  it("may have seen a service of the new database, which must have ended", async () => {
    const { data, storage } = await moving();
    const tried = await startServiceOn(storage);
    await expect(moveStorage({ directory: data, to: storage })).rejects.toMatchObject({
      code: "DATA_DIRECTORY_IN_USE",
      message: "A service runs on postgres://db/imgbatch.",
    });
    await tried.close(0);
    expect(await moveStorage({ directory: data, to: storage })).toMatchObject({ files: 1, problems: [] });
  });
});
