import fc from "fast-check";
import { describe, expect, inject, it } from "vitest";
import { isTerminal } from "../../src/contract/statuses.ts";
import { fuzzRuns } from "../support/fuzz-runs.ts";
import { tempDir } from "../support/temp-dir.ts";
import { MODELS, World } from "../support/world.ts";
import { checkEnd, checkFeed, checkMarks, checkMoment } from "../support/world-checks.ts";

/** Stories in all; `soak/races.mjs` asks for more. */
const STORIES = Math.ceil((inject("rounds") ?? 30) / 5);
const SEED = inject("seed") ?? 7;
const PROCESSES = 3;

const by = fc.nat({ max: PROCESSES - 1 });
const which = fc.nat({ max: 99 });
const of = <const T extends string>(name: T) => fc.constant(name);
const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      do: of("create"),
      model: fc.constantFrom(...MODELS),
      images: fc.integer({ min: 1, max: 6 }),
      by,
    }),
  },
  { weight: 6, arbitrary: fc.record({ do: of("work"), turns: fc.integer({ min: 1, max: 60 }) }) },
  { weight: 6, arbitrary: fc.record({ do: of("beat"), turns: fc.integer({ min: 1, max: 60 }) }) },
  { weight: 2, arbitrary: fc.record({ do: of("cancel"), which, by }) },
  { weight: 2, arbitrary: fc.record({ do: of("crash"), by }) },
  { weight: 2, arbitrary: fc.record({ do: of("stop"), by }) },
  { weight: 2, arbitrary: fc.record({ do: of("go on"), by }) },
  { weight: 1, arbitrary: fc.record({ do: of("crash all") }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

const EXPECTED_REFUSAL = /^BATCH_IMAGE_(INSUFFICIENT_BALANCE|CANCEL_FAILED)$/;
let prompts = 0;

async function take(world: World, now: Step, unexpected: unknown[]): Promise<void> {
  const refused = (error: { code?: string }) => {
    if (!EXPECTED_REFUSAL.test(error.code ?? "")) unexpected.push(error);
  };
  if (now.do === "create") {
    const texts = Array.from({ length: now.images }, () => `picture ${prompts++}`);
    world.create(now.model, texts, null, null, now.by).catch(refused);
  }
  if (now.do === "beat") world.beat();
  if (now.do === "stop" || now.do === "go on") world.setStopped(now.by, now.do === "stop");
  if (now.do === "crash") await world.crashOne(now.by);
  if (now.do === "crash all") await world.crash();
  if (now.do === "cancel") {
    const all = await world.stores.read.batches.all();
    const batch = all[now.which % Math.max(1, all.length)];
    if (batch) world.cancel(batch.id, now.by).catch(refused);
  }
  await world.turns.run("turns" in now ? now.turns : 1);
}

async function tell(story: readonly Step[], seed: number): Promise<void> {
  const world = await World.begin(await tempDir(), seed, 200_000, PROCESSES);
  const unexpected: unknown[] = [];
  for (const now of story) {
    await take(world, now, unexpected);
    await checkMoment(world);
  }
  await world.settle();
  await checkEnd(world);
  await checkMarks(world);
  expect([...unexpected, ...world.failures]).toEqual([]);
  await world.end();
}

const running = (world: World) => world.processes.map(({ scheduler }) => scheduler.load.running);

describe("three processes on one database", () => {
  it(
    "[WORK-15] keep the books and end every batch, whoever is killed, stopped, taken for dead, or cancels",
    async () => {
      const stories = fc.array(step, { minLength: 5, maxLength: 40, size: "max" });
      await fc.assert(fc.asyncProperty(stories, fc.nat(), tell), { seed: SEED, numRuns: STORIES });
    },
    2 ** 31 - 1,
  );

  it("stop the work on a batch that another one cancels with their next beat, and report it once", async () => {
    for (let seed = SEED; seed < SEED + fuzzRuns(40); seed++) {
      const world = await World.begin(await tempDir(), seed, 10_000_000, PROCESSES);
      const { batch } = await world.turns.until(
        world.create("one-by-one", ["a", "b", "c", "d", "e", "f"], null),
      );
      world.isHanging = true;
      await world.turns.run();
      world.beat();
      await world.turns.run();
      expect(running(world)).toEqual([2, 2, 2]);
      await world.turns.until(world.cancel(batch.id, 1));
      world.beat();
      await world.turns.run();
      const ended = await world.stores.read.batches.byId(batch.id);
      expect(isTerminal(ended?.status ?? "queued")).toBe(true);
      expect(running(world)).toEqual([0, 0, 0]);
      await checkFeed(world, batch.id);
      await checkEnd(world);
      await world.end();
    }
  });

  it("[WORK-15] share the images of a batch, and each is made once", async () => {
    const world = await World.begin(await tempDir(), SEED, 10_000_000, PROCESSES);
    const texts = Array.from({ length: 60 }, (_, i) => `shared ${i}`);
    await world.turns.until(world.create("one-by-one", texts, null));
    world.beat();
    const most = [0, 0, 0];
    for (let beats = 0; beats < 60; beats++) {
      world.beat();
      await world.turns.run(15);
      for (const [at, { scheduler }] of world.processes.entries())
        most[at] = Math.max(most[at] ?? 0, scheduler.load.running);
    }
    await world.settle();
    expect(most).toEqual([2, 2, 2]);
    await checkMarks(world);
    await checkEnd(world);
    await world.end();
  });

  it("take over what a killed one was at, within two terms", async () => {
    const world = await World.begin(await tempDir(), SEED, 10_000_000, PROCESSES);
    for (const model of MODELS)
      await world.turns.until(world.create(model, [`${model} 1`, `${model} 2`, `${model} 3`], null));
    await world.turns.run(25);
    world.setStopped(0, true);
    for (let beats = 0; beats < 8; beats++) {
      world.beat();
      await world.turns.run();
    }
    const { batches } = world.stores.read;
    expect((await batches.all()).filter(({ status }) => !isTerminal(status))).toEqual([]);
    await world.settle();
    await checkMarks(world);
    await checkEnd(world);
    await world.end();
  });
});
