import { describe, expect, inject, it } from "vitest";
import { memoryDir } from "../support/memory-dir.ts";
import { MODELS, World, type WorldModel } from "../support/world.ts";
import { checkEnd, checkFeed } from "../support/world-checks.ts";

/** Rounds of each kind; `soak/races.mjs` asks for more. */
const ROUNDS = inject("rounds") ?? 150;
const SEED = inject("seed") ?? 20_300_101;
/** A world gets slower as it fills. */
const ROUNDS_PER_WORLD = 25;

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
  await world.turns.run(Math.floor(random() * 120));
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
  it.each(MODELS)(
    "[CANCEL-3] [CANCEL-7] ends in one of both, with the right counts, money, files and events: %s",
    async (model) => {
      const ends: Record<string, number> = {};
      for (let done = 0; done < ROUNDS; done += ROUNDS_PER_WORLD) {
        const world = await World.begin(await memoryDir(), SEED + done, 10_000_000);
        for (let i = 0; i < ROUNDS_PER_WORLD; i++) {
          const end = await race(world, model);
          ends[end] = (ends[end] ?? 0) + 1;
        }
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
});
