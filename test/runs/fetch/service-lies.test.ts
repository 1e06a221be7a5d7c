import { mkdir, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { requireAskedFor } from "../../../src/runs/collect-run.ts";
import { judgeMissing } from "../../../src/runs/standing.ts";
import { leaveRun } from "../../../src/runs/start.ts";
import { packZip, png } from "../../support/fake-service.ts";
import { type Bench, createBench } from "../../support/run-harness.ts";

const TWO = [
  { custom_id: "cat", prompt: "a cat" },
  { custom_id: "dog", prompt: "a dog" },
];

it("batches that hold other images than were asked for are no result", async () => {
  const bench = await createBench();
  await bench.submit(TWO, { onlyStart: true });
  for (const item of bench.fake.batches[0]?.items ?? []) item.custom_id = `other_${item.custom_id}`;
  await expect(bench.submit(TWO)).rejects.toThrow(/2 of 2 images are in none of them, "cat" among them/);
  expect(await readdir(bench.dir)).not.toContain("results.jsonl");
});

it("a service that counts the images of an item in its own way is understood", async () => {
  const bench = await createBench();
  const three = [{ custom_id: "cat", prompt: "a cat", output_count: 3 }];
  await bench.submit(three, { onlyStart: true });
  bench.fake.batches[0]?.items.forEach((item, index) => {
    item.custom_id = `cat-${index}`;
  });
  const outcome = await bench.submit(three);
  expect(outcome.lines.map((line) => [line.custom_id, line.files.length])).toEqual([
    ["cat-0", 1],
    ["cat-1", 1],
    ["cat-2", 1],
  ]);
});

it("one batch as the answer to two different requests is refused, and the first stays what it is", async () => {
  const bench = await createBench();
  const limits = { itemsPerBatch: 1 };
  bench.fake.fault(/^POST/, { lie: (answer) => answer });
  bench.fake.fault(/^POST/, {
    lie: (answer) => ({ ...answer, body: Buffer.from(JSON.stringify(bench.fake.batches[0]?.wire)) }),
  });
  await expect(bench.submit(TWO, { limits })).rejects.toThrow("to two different requests");
  expect((await bench.runState()).batches.map((batch) => batch.state)).toEqual(["created", "intent"]);
  expect(await bench.submit(TWO, { limits })).toMatchObject({ fetchedCount: 2 });
  expect(bench.fake.batches).toHaveLength(2);
});

/** A run whose cat the service has not decided about, although the batch has ended. */
async function lateCat(ending: string): Promise<Bench> {
  const bench = await createBench({ statuses: [ending] });
  await bench.submit(TWO, { onlyStart: true, isNew: true });
  const [cat] = bench.fake.batches[0]?.items ?? [];
  Object.assign(cat ?? {}, { status: "pending", images: [] });
  bench.fake.always(/\/items\?/, {
    lie: (answer) => {
      const page = JSON.parse(answer.body.toString());
      for (const item of page.data) if (item.status === "pending") item.error = null;
      return { ...answer, body: Buffer.from(JSON.stringify(page)) };
    },
  });
  return bench;
}

it.each(["failed", "cancelled"])(
  "an item without an outcome in a batch that has %s is a failure that says so",
  async (ending) => {
    const bench = await lateCat(ending);
    const outcome = await bench.submit(TWO);
    expect(outcome.lines[0]).toMatchObject({ status: "pending", files: [], error: { code: "NO_OUTCOME" } });
    expect(outcome.lines[1]?.files).toHaveLength(1);
    expect(await bench.read("retry.jsonl")).toContain('"cat"');
  },
);

it("an item without an outcome in a completed batch has not failed, and is had when it comes", async () => {
  const bench = await lateCat("completed");
  const outcome = await bench.submit(TWO, { isNew: true });
  expect(outcome).toMatchObject({ hasRetry: false, fetchedCount: 1 });
  expect(outcome.lines[0]).toMatchObject({ files: [], error: { code: "BATCH_IMAGE_NOT_READY" } });
  expect(judgeMissing(outcome.lines)).toMatchObject({ exit: "temporary", code: "BATCH_IMAGE_NOT_READY" });
  expect(await readdir(bench.dir)).not.toContain("retry.jsonl");
  expect((await bench.runState()).batches[0]?.missing_count).toBe(1);
  const [cat] = bench.fake.batches[0]?.items ?? [];
  Object.assign(cat ?? {}, { status: "success", images: [png("cat")] });
  const again = await bench.submit(TWO, { isNew: true });
  expect(again).toMatchObject({ replayed: true, fetchedCount: 1 });
  expect(judgeMissing(again.lines)).toBeNull();
  expect((await bench.runState()).batches[0]?.missing_count).toBeUndefined();
});

it("when the images of a fresh run are gone, --new makes another one", async () => {
  const bench = await createBench();
  await bench.submit(TWO, { isNew: true, onlyStart: true });
  for (const batch of bench.fake.batches) batch.statuses = ["output_deleted"];
  const gone = await bench.submit(TWO, { isNew: true });
  expect(gone.lines.map(({ error }) => error?.code)).toEqual(Array(2).fill("BATCH_IMAGE_OUTPUT_DELETED"));
  expect(await bench.submit(TWO, { isNew: true })).toMatchObject({ replayed: false, fetchedCount: 2 });
  expect(bench.fake.batches).toHaveLength(2);
});

it("a fresh run that was left to others is not gone on with: --new makes another one", async () => {
  const bench = await createBench();
  await bench.submit(TWO, { isNew: true, onlyStart: true });
  await leaveRun(bench.dir, await bench.runState());
  await bench.submit(TWO, { onlyStart: true });
  expect(bench.fake.batches).toHaveLength(1);
  await bench.submit(TWO, { isNew: true, onlyStart: true });
  expect(bench.fake.batches).toHaveLength(2);
});

it("[RUN-6] a link in the place of a folder of the run is refused, and nothing is sent or written through it", async () => {
  for (const name of ["images", "references"]) {
    const bench = await createBench();
    await mkdir(`${bench.root}/precious`);
    await mkdir(bench.dir);
    await symlink(`${bench.root}/precious`, bench.path(name));
    await expect(bench.submit(TWO)).rejects.toMatchObject({ code: "DIRECTORY_CONFLICT" });
    expect(await readdir(`${bench.root}/precious`)).toEqual([]);
    expect(bench.fake.batches).toHaveLength(0);
  }
});

it("a ZIP that a crash left before it was unpacked is unpacked, a damaged one is fetched again", async () => {
  const bench = await createBench({ foreign: true });
  const { batches } = await bench.submit(TWO, { onlyStart: true });
  const name = `.imgbatch-${batches[0]?.id}.zip`;
  const whole = await packZip(TWO.map(({ custom_id: id }) => ({ name: `${id}.png`, data: png(id) })));
  await writeFile(bench.path(name), whole);
  await bench.submit(TWO);
  expect(bench.fake.count(/\/download/)).toBe(0);
  expect(await readdir(bench.dir)).not.toContain(name);

  await rm(bench.path("images"), { recursive: true });
  await rm(bench.path("results.jsonl"));
  await writeFile(bench.path(name), whole.subarray(0, 100));
  await bench.submit(TWO);
  expect(bench.fake.count(/\/download/)).toBe(1);
  expect(await readdir(bench.dir)).not.toContain(name);
});

it("a ZIP whose previews go by the names of the items is not guessed about", async () => {
  const bench = await createBench({
    foreign: true,
    tamper: (files) => files.flatMap((file) => [file, { name: `previews/${file.name}`, data: png("small") }]),
  });
  const outcome = await bench.submit(TWO);
  expect(bench.fake.count(/\/content/)).toBe(2);
  expect(outcome.lines.map((line) => line.files.length)).toEqual([1, 1]);
});

it("ids that are no file names, or make the same one, get ZIPs of their own", async () => {
  const { zipName } = await import("../../../src/runs/fetch/fetch-zip.ts");
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
