import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { MemoryBudget } from "../../src/kernel/memory-budget.ts";

const fits = (place: ReturnType<MemoryBudget["enter"]>, bytes: number) => place.take(bytes) === null;

describe("the memory of bodies", () => {
  it("[LOAD-1] slow senders keep little of it and delay no other", () => {
    const budget = new MemoryBudget(1000);
    for (let i = 0; i < 50; i++) expect(fits(budget.enter(), 1)).toBe(true);
    const other = budget.enter();
    for (let i = 0; i < 9; i++) expect(fits(other, 100)).toBe(true);
    expect(budget.bytes).toBe(950);
  });

  it("[LOAD-1] whatever happens, it is bounded, the oldest goes on, and all of it comes back", async () => {
    const step = fc.tuple(
      fc.nat({ max: 5 }),
      fc.constantFrom("take", "take", "finish", "leave"),
      fc.integer({ min: 1, max: 60 }),
    );
    const [shared, largest] = [100, 150];
    const play = async (steps: readonly (readonly [number, string, number])[]) => {
      const budget = new MemoryBudget(shared);
      const bodies = Array.from({ length: 6 }, () => ({
        place: budget.enter(),
        size: 0,
        state: "reading" as "reading" | "waiting" | "finished" | "gone",
      }));
      for (const [i, what, bytes] of steps) {
        const body = bodies[i];
        if (body?.state !== "reading") continue;
        if (what === "take" && body.size + bytes <= largest) {
          body.size += bytes;
          const wait = body.place.take(bytes);
          if (wait) body.state = "waiting";
          void wait?.then(() => {
            if (body.state === "waiting") body.state = "reading";
          });
        } else if (what === "finish") {
          body.state = "finished";
          body.place.finish();
        } else if (what === "leave") {
          body.state = "gone";
          body.place.leave();
        }
        await Promise.resolve();
        expect(budget.bytes).toBeLessThanOrEqual(2 * largest + shared);
        const oldest = bodies.find(({ state }) => state === "reading" || state === "waiting");
        const worked = bodies.reduce((sum, b) => sum + (b.state === "finished" ? b.size : 0), 0);
        if (worked <= shared) expect(oldest?.state).not.toBe("waiting");
      }
      for (const { place } of bodies) place.leave();
      expect(budget.bytes).toBe(0);
    };
    await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 80 }), play));
  });
});
