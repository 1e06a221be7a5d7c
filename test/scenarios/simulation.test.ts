import fc from "fast-check";
import { describe, expect, inject, it } from "vitest";
import { isTerminal } from "../../src/contract/statuses.ts";
import { settleBatch } from "../../src/domain/batches/end-batch.ts";
import { fuzzRuns } from "../support/fuzz-runs.ts";
import { MODELS, type SimulatedModel, Simulation } from "../support/simulation.ts";
import { checkEnd, checkFeed, checkMarks, checkMoment } from "../support/simulation-checks.ts";
import { tempDir } from "../support/temp-dir.ts";

/** Of each kind of race, and a fifth of it stories; `npm run soak -- --rounds` asks for more. */
const ROUNDS = inject("rounds") ?? 25;
const SEED = inject("seed") ?? 7;
/** A simulation gets slower as it fills. */
const ROUNDS_PER_SIMULATION = 25;
const PROCESSES = 3;
const NEVER_MS = 2 ** 31 - 1;

const weighted = <A extends object>(weight: number, how: { [K in keyof A]: fc.Arbitrary<A[K]> }) => ({
  weight,
  arbitrary: fc.record(how) as fc.Arbitrary<A>,
});
const of = <const T extends string>(name: T) => fc.constant(name);
const [by, which] = [fc.nat({ max: PROCESSES - 1 }), fc.nat({ max: 99 })];
const turns = fc.integer({ min: 1, max: 60 });
const step = fc.oneof(
  weighted(4, {
    do: of("create"),
    model: fc.constantFrom(...MODELS),
    images: fc.integer({ min: 1, max: 6 }),
    key: fc.option(fc.constantFrom("k1", "k2")),
    consent: fc.option(fc.constantFrom(0, 20_000, 500_000)),
    by,
  }),
  weighted(6, { do: of("work"), turns }),
  weighted(4, { do: of("beat"), turns }),
  weighted(2, { do: of("cancel"), which, by }),
  weighted(2, { do: of("crash"), by }),
  weighted(1, { do: of("crash all") }),
  weighted(1, { do: of("stop"), by }),
  weighted(1, { do: of("go on"), by }),
  weighted(1, { do: of("settle again"), which }),
  weighted(1, { do: of("delete outputs"), which }),
  weighted(1, { do: of("delete record"), which }),
  weighted(1, { do: of("top up"), amount: fc.integer({ min: 0, max: 20_000 }) }),
  weighted(1, { do: of("new price"), usd: fc.constantFrom(0, 0.003_333, 0.01, 0.07) }),
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

let prompts = 0;

/** Starts what the step says; it goes on while later steps do, until a crash. */
async function begin(simulation: Simulation, now: Step): Promise<{ answer?: Promise<unknown> }> {
  const all = await simulation.stores.read.batches.all();
  const isAlone = simulation.processes.length === 1;
  if (now.do === "create") {
    const { model, images, consent, by } = now;
    // Each image that several processes make is counted by its prompt.
    const key = isAlone ? now.key : null;
    const texts = Array.from({ length: images }, () => (isAlone ? "a picture" : `picture ${prompts++}`));
    return { answer: simulation.create(model, texts, key, consent, by) };
  }
  if (now.do === "beat" && !isAlone) simulation.beat();
  if (now.do === "stop" || now.do === "go on") simulation.setStopped(now.by, now.do === "stop" && !isAlone);
  if (now.do === "crash" && !isAlone) await simulation.crashOne(now.by);
  if (now.do === "new price") simulation.priceUsd = now.usd;
  if (now.do === "top up") return { answer: simulation.topUp(now.amount) };
  const batch = "which" in now ? all[now.which % Math.max(1, all.length)] : undefined;
  if (!batch) return {};
  if (now.do === "cancel") return { answer: simulation.cancel(batch.id, now.by) };
  if (now.do === "delete outputs") return { answer: simulation.deleteOutputs(batch.id) };
  if (now.do === "delete record") return { answer: simulation.deleteRecord(batch.id) };
  return { answer: settleBatch(simulation.stores, batch.id, { nowMs: 1, outputsExpireAtMs: null }) };
}

/** The ended statuses and paid amounts so far: none of them may ever change, but for deleted outputs. */
async function watch(simulation: Simulation, ended: Map<string, unknown>): Promise<void> {
  for (const batch of await simulation.stores.read.batches.all()) {
    const { id, status, actualMicroUsd, successCount, failCount } = batch;
    if (!isTerminal(status)) {
      expect(ended.has(id), `${id} is at work again`).toBe(false);
      continue;
    }
    const facts = { status, actualMicroUsd, successCount, failCount };
    if (status !== "output_deleted") expect(ended.get(id) ?? facts).toEqual(facts);
    else if (ended.has(id)) expect(facts).toEqual({ ...(ended.get(id) as object), status });
    ended.set(id, facts);
  }
}

const EXPECTED_REFUSAL =
  /^BATCH_IMAGE_(INSUFFICIENT_BALANCE|IDEMPOTENCY_CONFLICT|CANCEL_FAILED|OUTPUT_DELETE_NOT_READY|RECORD_DELETE_NOT_READY)$/;

async function tell(story: readonly Step[], seed: number, processes: number): Promise<void> {
  const balance = processes === 1 ? 60_000 : 200_000;
  const simulation = await Simulation.begin(await tempDir(), seed, balance, processes);
  const ended = new Map<string, unknown>();
  let unexpected: unknown[] = [];
  for (const now of story) {
    const { answer } = await begin(simulation, now);
    answer?.catch((error) => {
      if (!EXPECTED_REFUSAL.test(error.code ?? "")) unexpected.push(error);
    });
    if (now.do === "crash all" || (now.do === "crash" && processes === 1)) {
      await simulation.crash();
      // Callers whose requests were cut by the kill get no answer worth checking.
      unexpected = [];
    }
    await simulation.turns.run("turns" in now ? now.turns : 1);
    await watch(simulation, ended);
    await checkMoment(simulation);
  }
  await simulation.settle();
  await simulation.turns.until(simulation.sweep());
  await watch(simulation, ended);
  await checkEnd(simulation);
  if (processes > 1) await checkMarks(simulation);
  expect([...unexpected, ...simulation.failures]).toEqual([]);
  await simulation.end();
}

it.each([1, PROCESSES])(
  "[WORK-15] the books balance and every batch ends in any story of creations, work, failures, cancellations, deletions and crashes, of %d processes",
  async (processes) => {
    const stories = fc.array(step, { minLength: 5, maxLength: 40, size: "max" });
    const property = fc.asyncProperty(stories, fc.nat(), (story, seed) => tell(story, seed, processes));
    // To find the shortest story takes minutes.
    const endOnFailure = inject("rounds") === undefined;
    await fc.assert(property, { seed: SEED, numRuns: Math.ceil(ROUNDS / 5), endOnFailure });
  },
  NEVER_MS,
);

/** A batch takes about this many turns. */
const TURNS = { "one-by-one": 90, "as-a-job": 200 };

/** One batch, cancelled once or twice after a random number of turns. Returns how it ended. */
async function race(simulation: Simulation, model: SimulatedModel): Promise<string> {
  const { random } = simulation.turns;
  const texts = Array.from({ length: 1 + Math.floor(random() * 4) }, (_, i) => `picture ${i}`);
  const { batch } = await simulation.turns.until(simulation.create(model, texts, null));
  await simulation.turns.run(Math.floor(random() * TURNS[model]));
  const cancelling = simulation.cancel(batch.id).catch((error) => error);
  await simulation.turns.run(Math.floor(random() * 12));
  const again = random() < 0.3 ? simulation.cancel(batch.id).catch((error) => error) : null;
  await simulation.turns.run();
  for (const answer of [await cancelling, await again])
    if (answer) expect(answer).toMatchObject({ code: "BATCH_IMAGE_CANCEL_FAILED" });
  await checkFeed(simulation, batch.id);
  return (await simulation.stores.read.batches.byId(batch.id))?.status ?? "";
}

describe("a cancellation that races the work", () => {
  it.each([
    ["one-by-one", 0],
    ["as-a-job", 0],
    ["one-by-one", 0.3],
    ["as-a-job", 0.3],
  ] as const)(
    "[CANCEL-3] ends in one of both, with the right counts, money, files and events: %s, of the files damaged: %d",
    async (model, damagedShare) => {
      const ends: Record<string, number> = {};
      for (let done = 0; done < ROUNDS; done += ROUNDS_PER_SIMULATION) {
        const simulation = await Simulation.begin(await tempDir(), SEED + done, 10_000_000);
        simulation.damagedShare = damagedShare;
        for (let i = 0; i < ROUNDS_PER_SIMULATION; i++) {
          const end = await race(simulation, model);
          ends[end] = (ends[end] ?? 0) + 1;
        }
        expect(simulation.damaged.size > 0).toBe(damagedShare > 0);
        await checkEnd(simulation).catch((error) => {
          throw new Error(`seed ${SEED + done}`, { cause: error });
        });
        await simulation.end();
      }
      for (const end of ["cancelled", "completed"]) expect((ends[end] ?? 0) / ROUNDS).toBeGreaterThan(0.1);
      const possible =
        model === "as-a-job" ? ["cancelled", "completed", "failed"] : ["cancelled", "completed"];
      expect(possible).toEqual(expect.arrayContaining(Object.keys(ends)));
    },
    NEVER_MS,
  );

  it("wins while the results are being read, although it reads them too", async () => {
    for (let seed = SEED; seed < SEED + fuzzRuns(80); seed++) {
      const simulation = await Simulation.begin(await tempDir(), seed, 10_000_000);
      const creating = simulation.create("one-by-one", ["a", "b", "c"], null);
      const { batch } = await simulation.turns.until(creating);
      const status = async () => (await simulation.stores.read.batches.byId(batch.id))?.status;
      while ((await status()) !== "processing_results") await simulation.turns.run(1);
      await simulation.turns.until(simulation.cancel(batch.id));
      expect(await status()).toBe("cancelled");
      await simulation.turns.run();
      await checkEnd(simulation);
      await simulation.end();
    }
  });
});

const running = ({ processes }: Simulation) => processes.map(({ scheduler }) => scheduler.load.running);

describe("three processes on one database", () => {
  it("begin nothing more for a batch that another one cancels, and keep what had been sent, reported once", async () => {
    for (let seed = SEED; seed < SEED + fuzzRuns(40); seed++) {
      const simulation = await Simulation.begin(await tempDir(), seed, 10_000_000, PROCESSES);
      const texts = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
      const { batch } = await simulation.turns.until(simulation.create("one-by-one", texts, null));
      simulation.isHanging = true;
      await simulation.turns.run();
      simulation.beat();
      await simulation.turns.run();
      expect(running(simulation)).toEqual([2, 2, 2]);
      const cancelling = simulation.cancel(batch.id, 1);
      await simulation.turns.run();
      simulation.beat();
      simulation.answer();
      await simulation.turns.run();
      simulation.beat();
      await simulation.turns.until(cancelling);
      const ended = await simulation.stores.read.batches.byId(batch.id);
      expect(isTerminal(ended?.status ?? "queued")).toBe(true);
      expect(running(simulation)).toEqual([0, 0, 0]);
      expect(simulation.sent.size).toBe(6);
      await checkFeed(simulation, batch.id);
      await checkEnd(simulation);
      await simulation.end();
    }
  });

  it("[WORK-15] share the images of a batch, and each is made once", async () => {
    const simulation = await Simulation.begin(await tempDir(), SEED, 10_000_000, PROCESSES);
    const texts = Array.from({ length: 60 }, (_, i) => `shared ${i}`);
    await simulation.turns.until(simulation.create("one-by-one", texts, null));
    simulation.beat();
    const most = [0, 0, 0];
    for (let turns = 0; simulation.sent.size < texts.length; turns++) {
      if (turns % 15 === 0) simulation.beat();
      await simulation.turns.run(1);
      for (const [at, count] of running(simulation).entries()) most[at] = Math.max(most[at] ?? 0, count);
    }
    await simulation.settle();
    expect(most).toEqual([2, 2, 2]);
    await checkMarks(simulation);
    await checkEnd(simulation);
    await simulation.end();
  });

  it("take over what a killed one was at, within two terms", async () => {
    const simulation = await Simulation.begin(await tempDir(), SEED, 10_000_000, PROCESSES);
    for (const model of MODELS)
      await simulation.turns.until(simulation.create(model, [`${model} 1`, `${model} 2`], null));
    await simulation.turns.run(25);
    simulation.setStopped(0, true);
    for (let beats = 0; beats < 8; beats++) {
      simulation.beat();
      await simulation.turns.run();
    }
    const all = await simulation.stores.read.batches.all();
    expect(all.filter(({ status }) => !isTerminal(status))).toEqual([]);
    await simulation.settle();
    await checkMarks(simulation);
    await checkEnd(simulation);
    await simulation.end();
  });
});
