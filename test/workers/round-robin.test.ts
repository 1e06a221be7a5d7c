import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RoundRobin } from "../../src/workers/round-robin.ts";

const take = (turns: RoundRobin<string>, count: number) => Array.from({ length: count }, () => turns.next());

describe("taking turns", () => {
  it("[WORK-3] the entries of an owner take turns", () => {
    const turns = new RoundRobin<string>();
    for (const id of ["a", "b"]) turns.add("one", id, id);
    turns.add("one", "a", "a");
    expect(take(turns, 4)).toEqual(["a", "b", "a", "b"]);
    turns.delete("one", "a");
    expect(take(turns, 2)).toEqual(["b", "b"]);
    turns.delete("one", "b");
    turns.delete("one", "b");
    expect(turns.next()).toBeNull();
  });

  it("[WORK-6] owners take turns first, whatever number of entries each has", () => {
    const turns = new RoundRobin<string>();
    for (let i = 1; i <= 100; i++) turns.add("many", `m${i}`, `m${i}`);
    turns.add("few", "f", "f");
    expect(take(turns, 6)).toEqual(["m1", "f", "m2", "f", "m3", "f"]);
  });

  it("[WORK-6] an owner never waits for more turns than there are owners", () => {
    const step = fc.record({
      do: fc.constantFrom("add", "delete", "next", "next"),
      owner: fc.integer({ min: 0, max: 3 }).map(String),
      id: fc.integer({ min: 0, max: 3 }).map(String),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const turns = new RoundRobin<string>();
        const there = new Map<string, { ids: Set<string>; waited: number }>();
        for (const { do: what, owner, id } of steps) {
          const known = there.get(owner) ?? { ids: new Set<string>(), waited: 0 };
          if (what === "add") {
            turns.add(owner, `${owner}-${id}`, owner);
            there.set(owner, { ...known, ids: known.ids.add(id) });
          } else if (what === "delete") {
            turns.delete(owner, `${owner}-${id}`);
            if (known.ids.delete(id) && known.ids.size === 0) there.delete(owner);
          } else {
            const got = turns.next();
            expect(got === null).toBe(there.size === 0);
            for (const [name, entry] of there) entry.waited = name === got ? 0 : entry.waited + 1;
            for (const { waited } of there.values()) expect(waited).toBeLessThan(5);
          }
        }
      }),
      { seed: 1, numRuns: 200 },
    );
  });
});
