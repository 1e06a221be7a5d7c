import { describe, expect, it } from "vitest";
import { BATCH_STATUSES, type BatchStatus } from "../../../src/contract/statuses.ts";
import { moveBatch, TRANSITIONS } from "../../../src/domain/batches/lifecycle.ts";
import { openBatchRecord, openStores } from "../../support/stores.ts";

describe("moving a batch", () => {
  it("only allowed moves are possible", async () => {
    const allowed = TRANSITIONS.flatMap(({ from, to }) => from.map((status) => `${status} ${to}`));
    expect(allowed.sort()).toEqual(
      [
        "queued running",
        "running processing_results",
        "processing_results settling",
        "settling completed",
        ...["queued", "running", "processing_results"].map((s) => `${s} failed`),
        ...["queued", "running", "processing_results", "settling"].map((s) => `${s} cancelled`),
        ...["completed", "failed", "cancelled"].map((s) => `${s} output_deleted`),
      ].sort(),
    );
    const stores = await openStores();
    const batch = await openBatchRecord(stores);
    for (const from of BATCH_STATUSES) {
      for (const to of BATCH_STATUSES) {
        if (allowed.includes(`${from} ${to}`)) continue;
        const moved = stores.write(
          async (tx) => (await moveBatch(tx, { ...batch, status: from }, to, 1)).isMoved,
        );
        await expect(moved).rejects.toThrow(`cannot move from ${from} to ${to}`);
      }
    }
    expect((await stores.read.batches.byId(batch.id))?.status).toBe("queued");
  });

  it("does nothing when the batch has moved on meanwhile", async () => {
    const stores = await openStores();
    const batch = await openBatchRecord(stores);
    const move = (to: BatchStatus) => stores.write(async (tx) => (await moveBatch(tx, batch, to, 1)).isMoved);
    expect(await move("cancelled")).toBe(true);
    expect(await move("running")).toBe(false);
    expect(await move("cancelled")).toBe(false);
    expect((await stores.read.batches.events(batch.id)).map((e) => e.to)).toEqual(["queued", "cancelled"]);
    expect((await stores.read.ledger.list({ batchIds: [batch.id] })).map((e) => e.kind)).toEqual([
      "hold",
      "release",
    ]);
  });
});
