import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { moveMoney, placeHold, settleHold } from "../../../src/domain/billing/ledger.ts";
import { priceBatchImage } from "../../../src/domain/billing/payer.ts";
import { groupEntry, modelEntry } from "../../support/entries.ts";
import { openBatchRecord, openStores } from "../../support/stores.ts";

describe("the ledger", () => {
  it("[MONEY-4] captures what succeeded and releases the rest, and repeating it changes nothing", async () => {
    const stores = await openStores();
    const batch = await openBatchRecord(stores);
    for (let i = 0; i < 3; i++) {
      await stores.write((tx) => placeHold(tx, batch, 1));
      await stores.write((tx) => settleHold(tx, batch, 30, 2));
    }
    const entries = await stores.read.ledger.list({ batchIds: [batch.id] });
    expect(entries.map((e) => [e.kind, e.balanceChangeMicroUsd, e.heldChangeMicroUsd])).toEqual([
      ["hold", -60, 60],
      ["capture", 0, -30],
      ["release", 30, -30],
    ]);
    expect(await stores.read.accounts.byName("test")).toMatchObject({
      balanceMicroUsd: 970,
      heldMicroUsd: 0,
    });
  });

  it("[MONEY-4] never captures more than was held", async () => {
    const stores = await openStores();
    const batch = await openBatchRecord(stores);
    await expect(stores.write((tx) => settleHold(tx, batch, 70, 2))).rejects.toThrow("more than was held");
    expect(await stores.read.ledger.list({ batchIds: [batch.id] })).toHaveLength(1);
  });

  it("[MONEY-2] refuses a hold that the balance does not cover, and leaves no trace of it", async () => {
    const stores = await openStores();
    await expect(openBatchRecord(stores, 84)).rejects.toThrow("on hold, the balance is");
    expect((await stores.read.ledger.list({})).map(({ kind }) => kind)).toEqual(["top_up"]);
    expect(await stores.read.batches.all()).toEqual([]);
  });

  it("[MONEY-6] the balance is the sum of the entries after any story of movements", async () => {
    const stores = await openStores();
    await openBatchRecord(stores, 1);
    const account = await stores.read.accounts.byName("test");
    const accountId = account?.id ?? "";
    const movement = fc.record({
      kind: fc.constantFrom("top_up", "hold", "capture", "release", "charge", "grant", "take_back"),
      amountMicroUsd: fc.integer({ min: 0, max: 400 }),
      requestId: fc.integer({ min: 0, max: 40 }).map(String),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(movement, { maxLength: 12 }), async (story) => {
        for (const step of story) {
          await stores.write((tx) => moveMoney(tx, { ...step, accountId, batchId: null }, 1)).catch(() => {});
        }
        const entries = await stores.read.ledger.list({ accountId });
        const sum = (field: "balanceChangeMicroUsd" | "heldChangeMicroUsd") =>
          entries.reduce((total, entry) => total + entry[field], 0);
        const now = await stores.read.accounts.byId(accountId);
        expect(now?.balanceMicroUsd).toBe(sum("balanceChangeMicroUsd"));
        expect(now?.heldMicroUsd).toBe(sum("heldChangeMicroUsd"));
        expect(now?.balanceMicroUsd).toBeGreaterThanOrEqual(0);
        expect(now?.heldMicroUsd).toBeGreaterThanOrEqual(0);
      }),
      { numRuns: 30 },
    );
  });
});

describe("the price of an image", () => {
  it("[MONEY-1] is model times group times provider, discounted, and rounded once for one image", () => {
    const rates = { rateMultiplier: 1.1, batchDiscount: 0.5, holdMultiplier: 0.6 };
    const price = priceBatchImage(
      { ...modelEntry, prices: { "1K": 0.0336 } },
      { ...groupEntry, ...rates },
      1.3,
    );
    expect(price).toMatchObject({ imageMicroUsd: 24_024, holdMicroUsd: 28_829 });
  });

  it("[MONEY-4] the hold is never below the price", () => {
    const rates = { rateMultiplier: 1, batchDiscount: 0.9, holdMultiplier: 0.2 };
    const price = priceBatchImage({ ...modelEntry, prices: { "1K": 1 } }, { ...groupEntry, ...rates }, 1);
    expect(price).toMatchObject({ imageMicroUsd: 900_000, holdMicroUsd: 900_000 });
  });
});
