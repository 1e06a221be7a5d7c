import type { Stores } from "../ports/stores.ts";
import type { BatchError } from "../records.ts";
import { moveBatch } from "./lifecycle.ts";

/**
 * Ends a batch that cannot be processed as a whole: pending items fail, what had succeeded is paid for, the rest of
 * the hold goes back. Answers false when the batch had moved on.
 */
export function failBatch(
  stores: Stores,
  batchId: string,
  error: BatchError,
  end: { nowMs: number; outputsExpireAtMs: number | null },
): Promise<boolean> {
  return stores.write((tx) => {
    const batch = tx.batches.byId(batchId);
    if (!batch || !["queued", "running", "processing_results"].includes(batch.status)) return false;
    const { message, source } = error;
    const failed = tx.items.failPending(
      batchId,
      { code: "PROVIDER_ITEM_FAILED", message, source },
      end.nowMs,
    );
    tx.batches.addCounts(batchId, { success: 0, fail: failed });
    return moveBatch(tx, batch, "failed", end.nowMs, { error, outputsExpireAtMs: end.outputsExpireAtMs });
  });
}
