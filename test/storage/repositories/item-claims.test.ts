import { expect, it } from "vitest";
import type { Repositories, Stores } from "../../../src/domain/ports/stores.ts";
import { onEachDialect } from "../../support/dialects.ts";
import { newItem, openBatchRecord } from "../../support/stores.ts";

type ItemClaim = Parameters<Repositories["items"]["claim"]>[1];

const CLAIM: ItemClaim = {
  token: "t",
  worker: "w",
  nowMs: 10,
  provider: "p",
  upstream: "u",
  isPaid: true,
  which: "any",
  mostSwitches: 2,
  limit: 4,
};

async function batchOf(stores: Stores, itemCount: number): Promise<string> {
  const { id } = await openBatchRecord(stores, itemCount);
  const items = Array.from({ length: itemCount }, (_, position) => newItem(position));
  await stores.write((tx) => tx.items.insertMany(id, items));
  return id;
}

onEachDialect("a claim", (open) => {
  it("takes the first items, and none of a batch that has ended", async () => {
    const stores = await open();
    const id = await batchOf(stores, 6);
    const claim = (change: Partial<ItemClaim> = {}) =>
      stores.write((tx) => tx.items.claim(id, { ...CLAIM, ...change }));
    const first = await claim();
    expect(first.map(({ position }) => position)).toEqual([0, 1, 2, 3]);
    expect(first[0]).toMatchObject({ leaseToken: "t", provider: "p", maybePaid: "no", switches: 0 });
    // One may be paid already, another has failed at this provider: both come last, in this order.
    const back = { notBeforeMs: 0, attempts: 1, failedAt: "p", maybePaid: "no", usage: null } as const;
    await stores.write((tx) => tx.items.giveBack(first[0]?.id ?? 0, "t", { ...back, maybePaid: "once" }));
    await stores.write((tx) => tx.items.giveBack(first[1]?.id ?? 0, "t", back));
    const again = await claim({ token: "u", provider: "q" });
    expect(again.map(({ position, maybePaid, switches }) => [position, maybePaid, switches])).toEqual([
      [4, "no", 0],
      [5, "no", 0],
      [1, "no", 1],
      [0, "twice", 1],
    ]);
    expect(await stores.read.items.leasesOf("w")).toHaveLength(6);
    const ended = await batchOf(stores, 1);
    await stores.write((tx) => tx.batches.changeStatus(ended, "queued", "cancelled"));
    expect(await stores.write((tx) => tx.items.claim(ended, CLAIM))).toEqual([]);
  });
});
