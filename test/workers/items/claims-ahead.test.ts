import { expect, it } from "vitest";
import { ClaimsAhead } from "../../../src/workers/items/claims-ahead.ts";

function claimsAheadOf({ claimMs, requestMs }: { claimMs: number; requestMs: number }): ClaimsAhead {
  const claimsAhead = new ClaimsAhead();
  for (let at = 0; at < 50; at++) {
    claimsAhead.claimTook(claimMs);
    claimsAhead.requestTook(requestMs);
  }
  return claimsAhead;
}

it.each([
  ["a slow upstream with one slot", { claimMs: 10, requestMs: 10_000 }, 1, 0, 0],
  ["a slow upstream with many slots", { claimMs: 10, requestMs: 2000 }, 200, 0, 16],
  ["a fast upstream", { claimMs: 2, requestMs: 50 }, 8, 40, 5],
  ["a fast upstream that is still", { claimMs: 2, requestMs: 50 }, 8, 100, 3],
  ["a fast upstream that hangs", { claimMs: 2, requestMs: 50 }, 8, 1000, 0],
  ["an upstream that is faster than a claim", { claimMs: 50, requestMs: 0 }, 8, 50, 8],
  ["a claim that takes no time", { claimMs: 0, requestMs: 50 }, 8, 0, 0],
])("[SLOT-7] as many items are claimed ahead as begin meanwhile: %s", (_, times, slots, stillMs, ahead) => {
  expect(claimsAheadOf(times).most(slots, stillMs)).toBe(ahead);
});

it("[SLOT-7] none is claimed ahead before an upstream has answered", () => {
  const claimsAhead = new ClaimsAhead();
  claimsAhead.claimTook(1000);
  expect(claimsAhead.most(8, 0)).toBe(0);
});
