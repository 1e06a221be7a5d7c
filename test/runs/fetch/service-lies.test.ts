import { mkdir, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { requireAskedFor } from "../../../src/runs/collect-run.ts";
import { judgeMissing } from "../../../src/runs/standing.ts";
import { leaveRun } from "../../../src/runs/start.ts";
import { packZip, png } from "../../support/fake-service.ts";
import { createRunHarness, type RunHarness } from "../../support/run-harness.ts";

const TWO = [
  { custom_id: "cat", prompt: "a cat" },
  { custom_id: "dog", prompt: "a dog" },
];

it("batches that hold other images than were asked for are no result", async () => {
  const harness = await createRunHarness();
  await harness.submit(TWO, { onlyStart: true });
  for (const item of harness.fake.batches[0]?.items ?? []) item.custom_id = `other_${item.custom_id}`;
  await expect(harness.submit(TWO)).rejects.toThrow(/2 of 2 images are in none of them, "cat" among them/);
  expect(await readdir(harness.dir)).not.toContain("results.jsonl");
});

it("a service that counts the images of an item in its own way is understood", async () => {
  const harness = await createRunHarness();
  const three = [{ custom_id: "cat", prompt: "a cat", output_count: 3 }];
  await harness.submit(three, { onlyStart: true });
  harness.fake.batches[0]?.items.forEach((item, index) => {
    item.custom_id = `cat-${index}`;
  });
  const outcome = await harness.submit(three);
  expect(outcome.lines.map((line) => [line.custom_id, line.files.length])).toEqual([
    ["cat-0", 1],
    ["cat-1", 1],
    ["cat-2", 1],
  ]);
});

it("one batch as the answer to two different requests is refused, and the first stays what it is", async () => {
  const harness = await createRunHarness();
  const limits = { itemsPerBatch: 1 };
  harness.fake.fault(/^POST/, { lie: (answer) => answer });
  harness.fake.fault(/^POST/, {
    lie: (answer) => ({ ...answer, body: Buffer.from(JSON.stringify(harness.fake.batches[0]?.wire)) }),
  });
  await expect(harness.submit(TWO, { limits })).rejects.toThrow("to two different requests");
  expect((await harness.runState()).batches.map((batch) => batch.state)).toEqual(["created", "intent"]);
  expect(await harness.submit(TWO, { limits })).toMatchObject({ fetchedCount: 2 });
  expect(harness.fake.batches).toHaveLength(2);
});

/** A run whose cat the service has not decided about, although the batch has ended. */
async function lateCat(ending: string): Promise<RunHarness> {
  const harness = await createRunHarness({ statuses: [ending] });
  await harness.submit(TWO, { onlyStart: true, isNew: true });
  const [cat] = harness.fake.batches[0]?.items ?? [];
  Object.assign(cat ?? {}, { status: "pending", images: [] });
  harness.fake.always(/\/items\?/, {
    lie: (answer) => {
      const page = JSON.parse(answer.body.toString());
      for (const item of page.data) if (item.status === "pending") item.error = null;
      return { ...answer, body: Buffer.from(JSON.stringify(page)) };
    },
  });
  return harness;
}

it.each(["failed", "cancelled"])(
  "an item without an outcome in a batch that has %s is a failure that says so",
  async (ending) => {
    const harness = await lateCat(ending);
    const outcome = await harness.submit(TWO);
    expect(outcome.lines[0]).toMatchObject({ status: "pending", files: [], error: { code: "NO_OUTCOME" } });
    expect(outcome.lines[1]?.files).toHaveLength(1);
    expect(await harness.read("retry.jsonl")).toContain('"cat"');
  },
);

it("an item without an outcome in a completed batch has not failed, and is had when it comes", async () => {
  const harness = await lateCat("completed");
  const outcome = await harness.submit(TWO, { isNew: true });
  expect(outcome).toMatchObject({ hasRetry: false, fetchedCount: 1 });
  expect(outcome.lines[0]).toMatchObject({ files: [], error: { code: "BATCH_IMAGE_NOT_READY" } });
  expect(judgeMissing(outcome.lines)).toMatchObject({ exit: "temporary", code: "BATCH_IMAGE_NOT_READY" });
  expect(await readdir(harness.dir)).not.toContain("retry.jsonl");
  expect((await harness.runState()).batches[0]?.missing_count).toBe(1);
  const [cat] = harness.fake.batches[0]?.items ?? [];
  Object.assign(cat ?? {}, { status: "success", images: [png("cat")] });
  const again = await harness.submit(TWO, { isNew: true });
  expect(again).toMatchObject({ replayed: true, fetchedCount: 1 });
  expect(judgeMissing(again.lines)).toBeNull();
  expect((await harness.runState()).batches[0]?.missing_count).toBeUndefined();
});

it("when the images of a fresh run are gone, --new makes another one", async () => {
  const harness = await createRunHarness();
  await harness.submit(TWO, { isNew: true, onlyStart: true });
  for (const batch of harness.fake.batches) batch.statuses = ["output_deleted"];
  const gone = await harness.submit(TWO, { isNew: true });
  expect(gone.lines.map(({ error }) => error?.code)).toEqual(Array(2).fill("BATCH_IMAGE_OUTPUT_DELETED"));
  expect(await harness.submit(TWO, { isNew: true })).toMatchObject({ replayed: false, fetchedCount: 2 });
  expect(harness.fake.batches).toHaveLength(2);
});

it("a fresh run that was left to others is not gone on with: --new makes another one", async () => {
  const harness = await createRunHarness();
  await harness.submit(TWO, { isNew: true, onlyStart: true });
  await leaveRun(harness.dir, await harness.runState());
  await harness.submit(TWO, { onlyStart: true });
  expect(harness.fake.batches).toHaveLength(1);
  await harness.submit(TWO, { isNew: true, onlyStart: true });
  expect(harness.fake.batches).toHaveLength(2);
});

it("[RUN-6] a link in the place of a folder of the run is refused, and nothing is sent or written through it", async () => {
  for (const name of ["images", "references"]) {
    const harness = await createRunHarness();
    await mkdir(`${harness.root}/precious`);
    await mkdir(harness.dir);
    await symlink(`${harness.root}/precious`, harness.path(name));
    await expect(harness.submit(TWO)).rejects.toMatchObject({ code: "DIRECTORY_CONFLICT" });
    expect(await readdir(`${harness.root}/precious`)).toEqual([]);
    expect(harness.fake.batches).toHaveLength(0);
  }
});

it("a ZIP that a crash left before it was unpacked is unpacked, a damaged one is fetched again", async () => {
  const harness = await createRunHarness({ foreign: true });
  const { batches } = await harness.submit(TWO, { onlyStart: true });
  const name = `.imgbatch-${batches[0]?.id}.zip`;
  const whole = await packZip(TWO.map(({ custom_id: id }) => ({ name: `${id}.png`, data: png(id) })));
  await writeFile(harness.path(name), whole);
  await harness.submit(TWO);
  expect(harness.fake.count(/\/download/)).toBe(0);
  expect(await readdir(harness.dir)).not.toContain(name);

  await rm(harness.path("images"), { recursive: true });
  await rm(harness.path("results.jsonl"));
  await writeFile(harness.path(name), whole.subarray(0, 100));
  await harness.submit(TWO);
  expect(harness.fake.count(/\/download/)).toBe(1);
  expect(await readdir(harness.dir)).not.toContain(name);
});

it("a ZIP whose previews go by the names of the items is not guessed about", async () => {
  const harness = await createRunHarness({
    foreign: true,
    tamper: (files) => files.flatMap((file) => [file, { name: `previews/${file.name}`, data: png("small") }]),
  });
  const outcome = await harness.submit(TWO);
  expect(harness.fake.count(/\/content/)).toBe(2);
  expect(outcome.lines.map((line) => line.files.length)).toEqual([1, 1]);
});

it("ids that are no file names, or make the same one, get ZIPs of their own", async () => {
  const { zipName } = await import("../../../src/runs/fetch/zip.ts");
  const names = ["a/b", "a_b", "a:b", "x".repeat(400), "\u{1f600}".repeat(100), "../../etc"].map(zipName);
  expect(new Set(names).size).toBe(names.length);
  for (const name of names) expect(name).toMatch(/^[\w-]{1,100}\.zip$/);
});

it("very many images with wrong names are distinguished from the requested ones, and counted apart", () => {
  const names = (word: string) => Array.from({ length: 60_000 }, (_, n) => `${word}${n}_01`);
  const lines = (ids: readonly string[]) =>
    ids.map((custom_id) => ({ custom_id, status: "success", batch_id: "b", files: [] }));
  expect(() => requireAskedFor(names("mine"), lines(names("theirs")))).toThrow(/60000 of 60000 images/);
  const counted = names("mine").map((id) => id.replace("_01", "-1"));
  expect(() => requireAskedFor(names("mine"), lines(counted))).not.toThrow();
});
