import { describe, expect, inject, it } from "vitest";
import { fuzzRuns } from "../support/fuzz-runs.ts";
import { tempDir } from "../support/temp-dir.ts";
import { World, type WorldModel } from "../support/world.ts";
import { checkEnd, checkFeed } from "../support/world-checks.ts";

/** Rounds of each kind; `soak/races.mjs` asks for more. */
const ROUNDS = inject("rounds") ?? 25;
const SEED = inject("seed") ?? 20_300_101;
/** A world gets slower as it fills. */
const ROUNDS_PER_WORLD = 25;

/** A batch takes about this many turns. */
const TURNS = { "one-by-one": 90, "as-a-job": 150 };

declare module "vitest" {
  interface ProvidedContext {
    rounds?: number;
    seed?: number;
  }
}

/** One batch, cancelled once or twice after a random number of turns. Answers how it ended. */
async function race(world: World, model: WorldModel): Promise<string> {
  const { random } = world.turns;
  const prompts = Array.from({ length: 1 + Math.floor(random() * 4) }, (_, i) => `picture ${i}`);
  const creating = world.create(model, prompts, null);
  const { batch } = await world.turns.until(creating);
  await world.turns.run(Math.floor(random() * TURNS[model]));
  const cancelling = world.cancel(batch.id).catch((error) => error);
  await world.turns.run(Math.floor(random() * 12));
  const again = random() < 0.3 ? world.cancel(batch.id).catch((error) => error) : null;
  await world.turns.run();
  for (const answer of [await cancelling, await again]) {
    if (answer) expect(answer).toMatchObject({ code: "BATCH_IMAGE_CANCEL_FAILED" });
  }
  await checkFeed(world, batch.id);
  return (await world.stores.read.batches.byId(batch.id))?.status ?? "";
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
      for (let done = 0; done < ROUNDS; done += ROUNDS_PER_WORLD) {
        const world = await World.begin(await tempDir(), SEED + done, 10_000_000);
        world.damagedShare = damagedShare;
        for (let i = 0; i < ROUNDS_PER_WORLD; i++) {
          const end = await race(world, model);
          ends[end] = (ends[end] ?? 0) + 1;
        }
        expect(world.damaged.size > 0).toBe(damagedShare > 0);
        await checkEnd(world).catch((error) => {
          throw new Error(`seed ${SEED + done}`, { cause: error });
        });
        await world.end();
      }
      const share = (status: string) => (ends[status] ?? 0) / ROUNDS;
      expect(share("cancelled")).toBeGreaterThan(0.1);
      expect(share("completed")).toBeGreaterThan(0.1);
      expect(Object.keys(ends).sort()).toEqual(
        model === "as-a-job" ? ["cancelled", "completed", "failed"] : ["cancelled", "completed"],
      );
      if (inject("rounds")) process.stdout.write(`${model}: ${JSON.stringify(ends)}\n`);
    },
    2 ** 31 - 1,
  );

  it("wins while the results are being read, although it reads them too", async () => {
    for (let seed = SEED; seed < SEED + fuzzRuns(80); seed++) {
      const world = await World.begin(await tempDir(), seed, 10_000_000);
      const creating = world.create("one-by-one", ["a", "b", "c"], null);
      const { batch } = await world.turns.until(creating);
      const status = async () => (await world.stores.read.batches.byId(batch.id))?.status;
      while ((await status()) !== "processing_results") await world.turns.run(1);
      const cancelling = world.cancel(batch.id);
      await world.turns.run();
      await cancelling;
      expect(await status()).toBe("cancelled");
      await checkEnd(world);
      await world.end();
    }
  });
});
