import fc from "fast-check";
import { describe, expect, inject, it } from "vitest";
import { isTerminal } from "../../src/contract/statuses.ts";
import { settleBatch } from "../../src/domain/batches/end-batch.ts";
import type { BatchRecord } from "../../src/domain/records.ts";
import { FakeProvider, made, tinyPng } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { items, MODEL, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";
import { MODELS, World } from "../support/world.ts";
import { checkEnd, checkMoment } from "../support/world-checks.ts";

/** Stories in all; `soak/races.mjs` asks for more. */
const STORIES = Math.ceil((inject("rounds") ?? 30) / 5);
const SEED = inject("seed") ?? 7;

const which = fc.nat({ max: 99 });
const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("create" as const),
      model: fc.constantFrom(...MODELS),
      images: fc.integer({ min: 1, max: 5 }),
      key: fc.option(fc.constantFrom("k1", "k2")),
      consent: fc.option(fc.constantFrom(0, 20_000, 500_000)),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant("work" as const), turns: fc.integer({ min: 1, max: 40 }) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("cancel" as const), which }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("crash" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("settle again" as const), which }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("delete outputs" as const), which }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("delete record" as const), which }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("top up" as const), amount: fc.integer({ min: 0, max: 20_000 }) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("new price" as const),
      usd: fc.constantFrom(0, 0.003_333, 0.01, 0.07),
    }),
  },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** Starts what the step says; it goes on while later steps do, until a crash. */
function begin(world: World, now: Step, all: readonly BatchRecord[]): Promise<unknown> | null {
  const batch = "which" in now ? all[now.which % Math.max(1, all.length)] : undefined;
  if (now.do === "create") {
    return world.create(now.model, Array(now.images).fill("a picture"), now.key, now.consent);
  }
  if (now.do === "top up") return world.topUp(now.amount);
  if (now.do === "new price") world.priceUsd = now.usd;
  if (!batch) return null;
  if (now.do === "cancel") return world.cancel(batch.id);
  if (now.do === "delete outputs") return world.deleteOutputs(batch.id);
  if (now.do === "delete record") return world.deleteRecord(batch.id);
  if (now.do === "settle again")
    return settleBatch(world.stores, batch.id, { nowMs: 1, outputsExpireAtMs: null });
  return null;
}

/** The ended statuses and paid amounts so far: none of them may ever change, but for deleted outputs. */
async function watch(world: World, ended: Map<string, unknown>): Promise<void> {
  for (const {
    id,
    status,
    actualMicroUsd,
    successCount,
    failCount,
  } of await world.stores.read.batches.all()) {
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

async function tell(story: readonly Step[], seed: number): Promise<void> {
  const directory = await tempDir();
  const world = await World.begin(directory, seed, 60_000);
  const ended = new Map<string, unknown>();
  for (const now of story) {
    const all = await world.stores.read.batches.all();
    begin(world, now, all)?.catch((error) => {
      // Callers whose requests were cut by the kill get no answer worth checking.
      if (!EXPECTED_REFUSAL.test(error.code)) unexpected.push(error);
    });
    if (now.do === "crash") {
      await world.crash();
      unexpected.length = 0;
    }
    await world.turns.run(now.do === "work" ? now.turns : 1);
    await watch(world, ended);
    await checkMoment(world);
  }
  await world.turns.run();
  const sweeping = world.sweep();
  await world.turns.run();
  await sweeping;
  await watch(world, ended);
  await checkEnd(world);
  expect(unexpected).toEqual([]);
  await world.end();
}
let unexpected: unknown[] = [];

describe("the books", () => {
  it(
    "balance after every step of any story: creations, work, failures, cancellations, deletions, crashes",
    async () => {
      const property = fc.asyncProperty(
        fc.array(step, { minLength: 5, maxLength: 40, size: "max" }),
        fc.nat(),
        (story, seed) => {
          unexpected = [];
          return tell(story, seed);
        },
      );
      await fc.assert(property, { seed: SEED, numRuns: STORIES });
    },
    2 ** 31 - 1,
  );
});

describe("a balance", () => {
  it("[MONEY-2] for seven pays for exactly seven of a thousand that come at once", async () => {
    const world = await World.begin(await tempDir(), SEED, 7 * 6000 + 5999);
    const creating = Array.from({ length: 1000 }, () =>
      world.create("one-by-one", ["a picture"], null).then(
        () => "accepted",
        (error) => error.code,
      ),
    );
    // Nothing is settled meanwhile: what is released would pay for more.
    const { scheduler } = world;
    await world.turns.until(scheduler.stop(0));
    await world.turns.run();
    const answers = await Promise.all(creating);
    expect(answers.filter((answer) => answer === "accepted")).toHaveLength(7);
    expect(answers.filter((answer) => answer === "BATCH_IMAGE_INSUFFICIENT_BALANCE")).toHaveLength(993);
    await checkMoment(world);
    await world.end();
  });

  it("[MONEY-2] is never overdrawn by sixteen of different sizes, and refuses only what it cannot pay", async () => {
    for (let seed = 0; seed < 8; seed++) {
      const world = await World.begin(await tempDir(), SEED + seed, 100_000);
      await world.turns.until(world.scheduler.stop(0));
      const sizes = Array.from({ length: 16 }, () => 1 + Math.floor(world.turns.random() * 5));
      const creating = sizes.map((size) =>
        world.create("one-by-one", Array(size).fill("a"), null).catch(() => null),
      );
      await world.turns.run();
      const refused = (await Promise.all(creating)).flatMap((made, i) =>
        made ? [] : [(sizes[i] ?? 0) * 6000],
      );
      const left = (await world.stores.read.accounts.byId(world.key.accountId))?.balanceMicroUsd ?? -1;
      expect(left).toBeGreaterThanOrEqual(0);
      for (const hold of refused) expect(hold).toBeGreaterThan(left);
      await checkMoment(world);
      await world.end();
    }
  });

  it("is charged the price of the creation, although model, group and provider cost other money since", async () => {
    const provider = new FakeProvider();
    const held = gate();
    provider.answer = async (_, signal) => {
      signal.addEventListener("abort", () => held.fail(signal.reason));
      await held.promise;
      return made(await tinyPng());
    };
    const first = await startTestService({ providers: [provider] });
    const { id, hold_amount } = await first.submit({ model: MODEL, items: items(2) });
    await first.close(0);
    const config = {
      models: [{ id: "another-model", prices: { "1K": 9 } }],
      groups: [{ name: "default", rateMultiplier: 3, batchDiscount: 1, holdMultiplier: 1 }],
    };
    const second = await startTestService({ data: first.data, config });
    expect(await second.until(id)).toMatchObject({ status: "completed", actual_cost: 0.067, hold_amount });
  });
});
