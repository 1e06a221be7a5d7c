import { describe, expect, it } from "vitest";
import { costOf, needsOf } from "../../../src/domain/batches/create-batch.ts";
import { moveBatch, startBatch } from "../../../src/domain/batches/lifecycle.ts";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import type { NewItem } from "../../../src/domain/ports/batches.ts";
import { BATCH_TERMS, type ItemTerms } from "../../../src/domain/records.ts";
import { openBeside } from "../../support/service.ts";
import { openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

const item = (position: number, terms?: Partial<ItemTerms>): NewItem => ({
  position,
  sourceIndex: position,
  outputIndex: 0,
  customId: `line_00000${position + 1}`,
  prompt: "a fox",
  ...(terms ? { terms: { ...BATCH_TERMS, ...terms } } : {}),
});

describe("items that differ from the rest of their batch", () => {
  it("[LINES-1] are settled as the sum of their own prices, and of the batch's where they have none", async () => {
    const { stores, blobs } = await openBeside(await tempDir());
    // Two images at the price of the batch, one at its own: 10 + 10 + 70, with 12 + 12 + 80 on hold.
    const batch = await openBatchRecord(stores, 3, { estimatedMicroUsd: 90, holdMicroUsd: 104 });
    const own = { tier: "4K", ratio: "16:9", priceMicroUsd: 70, holdMicroUsd: 80 } as const;
    await stores.write((tx) => tx.items.insertMany(batch.id, [item(0), item(1, own), item(2)]));
    expect(await stores.read.items.sums(batch.id, batch.price)).toEqual({
      holdMicroUsd: 104,
      priceMicroUsd: 90,
      earnedMicroUsd: 0,
    });
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
    await startBatch(stores, batch.id, 2);
    await stores.write(async (tx) => {
      for (const customId of ["line_000001", "line_000002"]) {
        const token = customId;
        const claim = {
          token,
          worker: "w",
          nowMs: 2,
          provider: "p",
          upstream: "u",
          isPaid: false,
          which: "any",
          mostSwitches: 2,
          limit: 1,
        } as const;
        const [claimed] = await tx.items.claim(batch.id, claim);
        const made = { mimeType: "image/png", imageCount: 0, error: null, finishedAtMs: 2 } as const;
        const base = { modelVersion: null, seed: null, notes: [], usage: null, answer: null };
        const facts = { ...base, maybePaid: "no" } as const;
        const finished = { id: claimed?.id ?? 0, leaseToken: token, status: "success" } as const;
        await tx.items.finish([{ ...finished, ...made, ...facts }]);
      }
    });
    const input = { fileName: "files/a", blobKey: "files/a", consentMicroUsd: null };
    expect(await costOf(stores.read, { ...batch, input })).toBe(80);
    await stores.write(async (tx) => {
      const error = { code: "CANCELLED", message: "no", source: "service" } as const;
      await tx.items.failPending(batch.id, error, 3);
      await tx.batches.addCounts({ id: batch.id, success: 2, fail: 1 });
      await moveBatch(tx, { ...batch, status: "running" }, "cancelled", 3);
    });
    expect(await stores.read.batches.byId(batch.id)).toMatchObject({ actualMicroUsd: 80 });
    expect(await stores.read.accounts.byName("test")).toMatchObject({
      balanceMicroUsd: 920,
      heldMicroUsd: 0,
    });
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  });

  it("[LINES-1] ask for a provider that takes every size and ratio among them", async () => {
    const { stores } = await openBeside(await tempDir());
    const batch = await openBatchRecord(stores, 3);
    expect(await needsOf(stores.read, batch.id)).toEqual({
      references: 0,
      ratios: ["1:1"],
      sizes: ["1K"],
      options: [],
    });
    const wide = { tier: "2K", ratio: "21:9" } as const;
    const tall = { tier: "1K", ratio: "9:16" } as const;
    await stores.write((tx) =>
      tx.items.insertMany(batch.id, [item(0, wide), item(1, tall), item(2, { ...wide })]),
    );
    const needs = await needsOf(stores.read, batch.id);
    expect([...needs.ratios].sort()).toEqual(["21:9", "9:16"]);
    expect([...needs.sizes].sort()).toEqual(["1K", "2K"]);
  });
});
