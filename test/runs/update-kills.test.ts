import files, { readdir, readFile } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { expect, it, onTestFinished } from "vitest";
import { fuzzRuns } from "../support/fuzz-runs.ts";
import { createRunHarness } from "../support/run-harness.ts";

/** Counts the changes of files, and lets none happen from the one on at which the process is killed. */
const disk = { changes: 0, killAt: Number.POSITIVE_INFINITY };

function watchDisk(): void {
  const { rename, rm, copyFile, mkdir, open } = files;
  const real = { rename, rm, copyFile, mkdir, open };
  const change = (work: (...args: never[]) => Promise<unknown>) => {
    return async (...args: never[]) => {
      disk.changes++;
      if (disk.changes >= disk.killAt) throw new Error("killed");
      return work(...args);
    };
  };
  Object.assign(
    files,
    Object.fromEntries(Object.entries(real).map(([name, work]) => [name, change(work as never)])),
  );
  syncBuiltinESMExports();
  onTestFinished(() => {
    Object.assign(files, real);
    syncBuiltinESMExports();
  });
}

/** An ordinary run takes one change of this many; those that are lost with the answers begin at another place. */
const EVERY = Math.round(60 / fuzzRuns(60));

const line = (custom_id: string, prompt = `a ${custom_id}`) => ({ custom_id, prompt });
const PETS = [line("cat"), line("dog"), line("cow"), { prompt: "no name" }];
const EDITED = [
  line("cat"),
  { prompt: "another" },
  line("dog", "a big dog"),
  line("hen"),
  { prompt: "no name" },
];

/** Updates a run, kills that at a change of a file, and updates it again. Returns whether there was such a change. */
async function killedAt(killAt: number, answersLost: number): Promise<boolean> {
  const harness = await createRunHarness();
  await harness.submit(PETS);
  const before = new Map<string, Buffer>();
  for (const name of await readdir(harness.path("images")))
    before.set(name, await readFile(harness.path(`images/${name}`)));
  for (let i = 0; i < answersLost; i++) harness.fake.fault(/^POST/, { reset: "after" });
  Object.assign(disk, { changes: 0, killAt });
  await harness.submit(EDITED, { isUpdate: true }).catch(() => {});
  const isKilled = disk.changes >= killAt;
  disk.killAt = Number.POSITIVE_INFINITY;
  const again = () => harness.submit(EDITED, { isUpdate: true });
  await again().catch(again);
  const images = ["cat.png", "dog.png", "hen.png", "item_000002.png", "item_000004.png"];
  expect((await readdir(harness.path("images"))).sort()).toEqual(images);
  for (const [folder, name] of [
    ["images", "cat.png"],
    ["images", "item_000004.png"],
    ["removed", "cow.png"],
    ["removed", "dog.png"],
  ] as const)
    expect(await readFile(harness.path(`${folder}/${name}`))).toEqual(before.get(name));
  expect((await readdir(harness.path("removed"))).sort()).toEqual(["cow.png", "dog.png"]);
  const results = (await harness.results()).map(({ custom_id, status, files }) => [
    custom_id,
    status,
    files.length,
  ]);
  expect(results).toEqual(
    ["cat", "item_000002", "dog", "hen", "item_000004"].map((id) => [id, "success", 1]),
  );
  expect(harness.fake.batches.map(({ items }) => items.map((item) => item.custom_id))).toEqual([
    ["cat", "dog", "cow", "item_000004"],
    ["item_000002", "dog", "hen"],
  ]);
  expect((await readdir(harness.dir)).filter((name) => name.startsWith("."))).toEqual([]);
  return isKilled;
}

it.each([0, 4])(
  "[UPDATE-6] an update that is killed at any change of a file goes on with the same command: nothing is paid twice, nothing is lost (%i lost answers)",
  async (answersLost) => {
    watchDisk();
    let killAt = answersLost === 0 ? 1 : Math.min(2, EVERY);
    while (await killedAt(killAt, answersLost)) killAt += EVERY;
    expect(killAt).toBeGreaterThan(answersLost === 0 ? 15 : 8);
  },
  120_000,
);
