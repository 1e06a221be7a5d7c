import { expect, it } from "vitest";
import { ClaimPace } from "../../../src/workers/items/claim-pace.ts";

function paceOf({ claimMs, requestMs }: { claimMs: number; requestMs: number }): ClaimPace {
  const pace = new ClaimPace();
  for (let at = 0; at < 50; at++) {
    pace.claimTook(claimMs);
    pace.requestTook(requestMs);
  }
  return pace;
}

it.each([
  ["a slow upstream with one slot", { claimMs: 10, requestMs: 10_000 }, 1, 0, 0],
  ["a slow upstream with many slots", { claimMs: 10, requestMs: 2000 }, 200, 0, 4],
  ["a fast upstream", { claimMs: 5, requestMs: 50 }, 8, 40, 3],
  ["a fast upstream that is still", { claimMs: 5, requestMs: 50 }, 8, 100, 2],
  ["a fast upstream that hangs", { claimMs: 5, requestMs: 50 }, 8, 1000, 0],
  ["an upstream that is faster than a claim", { claimMs: 50, requestMs: 0 }, 8, 50, 8],
  ["a claim that takes no time", { claimMs: 0, requestMs: 50 }, 8, 0, 0],
])("[SLOT-7] as many items are claimed ahead as begin meanwhile: %s", (_, times, slots, stillMs, ahead) => {
  expect(paceOf(times).ahead(slots, stillMs)).toBe(ahead);
});

it("[SLOT-7] none is claimed ahead before an upstream has answered", () => {
  const pace = new ClaimPace();
  pace.claimTook(1000);
  expect(pace.ahead(8, 0)).toBe(0);
});
