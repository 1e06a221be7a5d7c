import { describe, expect, it } from "vitest";
import { costOf } from "../../../src/domain/batches/create-batch.ts";
import { moveBatch, startBatch } from "../../../src/domain/batches/lifecycle.ts";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { needsOf } from "../../../src/domain/checked-content.ts";
import { DEFAULT_OPTIONS, type ImageOptions } from "../../../src/domain/ports/image-provider.ts";
import { openBeside } from "../../support/service.ts";
import { newItem, openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

describe("items that differ from the rest of their batch", () => {
  it("[LINES-1] are settled as the sum of their own prices", async () => {
    const { stores, blobs } = await openBeside(await tempDir());
    // Two images at the price of the batch, and a dearer one: 10 + 10 + 70, with 12 + 12 + 80 on hold.
    const batch = await openBatchRecord(stores, 3, { estimatedMicroUsd: 90, holdMicroUsd: 104 });
    const own = { priceMicroUsd: 70, holdMicroUsd: 80 };
    await stores.write((tx) => tx.items.insertMany(batch.id, [newItem(0), newItem(1, own), newItem(2)]));
    expect(await stores.read.items.sums(batch.id)).toEqual({
      holdMicroUsd: 104,
      priceMicroUsd: 90,
      earnedMicroUsd: 0,
    });
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
    await startBatch(stores, batch.id, 2);
    await stores.write(async (tx) => {
      for (const customId of ["i0", "i1"]) {
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
        if (!claimed) throw new Error("no item could be claimed");
        await tx.items.finish([{ ...claimed, leaseToken: token, status: "success", ...made, ...facts }]);
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

  it("[LINES-1] ask for a provider that takes every size, ratio and option among them", () => {
    const asking = (options: Partial<ImageOptions>) => ({
      prompt: "a fox",
      earlier: "",
      images: [],
      options: { ...DEFAULT_OPTIONS, ...options },
    });
    expect(needsOf([asking({})])).toEqual({ references: 0, ratios: ["1:1"], sizes: ["1K"], options: [] });
    const wide = { size: "2K", ratio: "21:9" } as const;
    const several = [asking(wide), asking({ ratio: "9:16", seed: 0 }), asking({ ...wide, quality: "high" })];
    const needs = {
      references: 0,
      ratios: ["21:9", "9:16"],
      sizes: ["2K", "1K"],
      options: ["seed", "quality"],
    };
    expect(needsOf(several)).toEqual(needs);
    expect(needsOf(several.slice(1), needsOf(several.slice(0, 1)))).toEqual(needs);
  });
});
