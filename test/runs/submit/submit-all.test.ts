import { expect, it } from "vitest";
import type { RunBatch } from "../../../src/runs/directory/run-state-schema.ts";
import { submitAll } from "../../../src/runs/send.ts";
import { InstantClock } from "../../support/instant-clock.ts";
import { createBench } from "../../support/run-harness.ts";

const partsOf = (count: number) =>
  Array.from({ length: count }, (_, index) => ({ index, asked_count: 200 }) as RunBatch);
const usual = { pacing: null, isLarge: false };

/** Submits with a turn of the event loop for each, and counts how many are under way. */
async function watch(count: number, fails: (index: number) => boolean = () => false, isLarge = false) {
  const seen = { most: 0, underFirst: 0, started: [] as number[], ended: 0 };
  let underWay = 0;
  const submit = async ({ index }: RunBatch) => {
    underWay++;
    seen.started.push(index);
    seen.most = Math.max(seen.most, underWay);
    // Later ones of those side by side end first.
    for (let turn = 0; turn < 20 - index; turn++) await new Promise(setImmediate);
    if (index === 0) seen.underFirst = underWay;
    underWay--;
    seen.ended++;
    if (fails(index)) throw new Error(`no ${index}`);
  };
  const done = submitAll(partsOf(count), submit, { ...usual, isLarge });
  return { seen, found: await done.catch((error: Error) => error.message) };
}

it("[RUN-26] the first batch goes alone, then four side by side", async () => {
  const { seen } = await watch(10);
  expect(seen).toMatchObject({ most: 4, underFirst: 1 });
});

it("[RUN-26] batches with reference images go one after the other", async () => {
  expect((await watch(5, undefined, true)).seen.most).toBe(1);
});

it("[RUN-26] after a failure nothing new leaves, and what is under way is waited for", async () => {
  const first = await watch(10, (index) => index === 0);
  expect([first.found, first.seen.started]).toEqual(["no 0", [0]]);
  const later = await watch(10, (index) => index === 4);
  expect(later.found).toBe("no 4");
  expect(later.seen.started).toEqual([0, 1, 2, 3, 4]);
  expect(later.seen.ended).toBe(5);
});

it("[RUN-26] the run state names every batch that was made, each in its place, also after a failure", async () => {
  const bench = await createBench();
  const lines = Array.from({ length: 12 }, (_, i) => ({ custom_id: `c${i}`, prompt: `cat ${i}` }));
  const limits = { itemsPerBatch: 1 };
  bench.fake.fault(/^POST/, ...Array.from({ length: 5 }, () => ({ lie: <T>(answer: T) => answer })), {
    status: 402,
    body: { error: { code: "BATCH_IMAGE_INSUFFICIENT_BALANCE", message: "no" } },
  });
  await expect(bench.submit(lines, { limits })).rejects.toMatchObject({
    code: "BATCH_IMAGE_INSUFFICIENT_BALANCE",
  });
  const half = (await bench.runState()).batches.filter(({ state }) => state === "created");
  expect(half.map(({ id }) => id).sort()).toEqual(bench.fake.batches.map(({ id }) => id).sort());
  const outcome = await bench.submit(lines, { limits });
  expect(outcome.lines.map((line) => line.custom_id)).toEqual(lines.map((line) => line.custom_id));
  expect(bench.fake.batches).toHaveLength(12);
  const runState = await bench.runState();
  for (const [index, { id, state }] of runState.batches.entries()) {
    const made = bench.fake.batches.find((batch) => batch.id === id);
    expect([state, made?.items[0]?.custom_id]).toEqual(["created", `c${index}`]);
  }
});

it("[RUN-35] where images are drawn here, one batch goes at a time, and drawing has three times as long in between", async () => {
  const clock = new InstantClock();
  const took = [300, 0, 2_000, 100];
  let [underWay, most] = [0, 0];
  const submit = async ({ index }: RunBatch) => {
    most = Math.max(most, ++underWay);
    await clock.sleep(took[index] ?? 0);
    await new Promise(setImmediate);
    underWay--;
  };
  await submitAll(partsOf(4), submit, { ...usual, pacing: { clock } });
  // Never longer than drawing its images takes, and not after the last one.
  expect(clock.sleepsMs).toEqual([300, 900, 0, 0, 2_000, 2_000, 100]);
  expect(most).toBe(1);
});

it("[RUN-35] an interruption ends a pause, and nothing leaves after it", async () => {
  const clock = new InstantClock();
  const interruption = new AbortController();
  const started: number[] = [];
  const submit = async ({ index }: RunBatch) => {
    started.push(index);
    if (index === 1) interruption.abort(new Error("interrupted"));
  };
  const done = submitAll(partsOf(4), submit, { ...usual, pacing: { clock, signal: interruption.signal } });
  await expect(done).rejects.toThrow("interrupted");
  expect(started).toEqual([0, 1]);
});
