import type { Stores } from "../ports/stores.ts";
import type { BatchError } from "../records.ts";
import { failPending } from "./fail-pending.ts";
import { moveBatch } from "./lifecycle.ts";

/**
 * Ends a batch that cannot be processed as a whole: pending items fail, what had succeeded is paid for, the rest of
 * the hold goes back. Answers the custom ids of the items that failed with it, or null when the batch had moved on.
 */
export function failBatch(
  stores: Stores,
  batchId: string,
  error: BatchError,
  end: { nowMs: number; outputsExpireAtMs: number | null },
): Promise<string[] | null> {
  return stores.write(async (tx) => {
    const batch = await tx.batches.byId(batchId);
    if (!batch || !["queued", "running", "processing_results"].includes(batch.status)) return null;
    const { message, source } = error;
    const failed = await failPending(tx, batch, { code: "PROVIDER_ITEM_FAILED", message, source }, end.nowMs);
    const { outputsExpireAtMs } = end;
    return (await moveBatch(tx, batch, "failed", end.nowMs, { error, outputsExpireAtMs })).isMoved
      ? failed
      : null;
  });
}
