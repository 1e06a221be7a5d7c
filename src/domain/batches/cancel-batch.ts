import type { ItemError } from "../../contract/item-errors.ts";
import { isTerminal } from "../../contract/statuses.ts";
import type { Stores } from "../ports/stores.ts";
import { moveBatch } from "./lifecycle.ts";

const CANCELLED: ItemError = {
  code: "CANCELLED",
  message: "The batch was cancelled before this item was made.",
  source: "service",
};

/**
 * Cancels a batch, in one transaction: what is not finished fails, what is finished is paid for and stays, the rest of
 * the hold goes back. Work that is under way loses its lease with it, so a late result is dropped. Answers whether
 * the batch was cancelled by this call; an ended batch stays as it is.
 * Rules: CANCEL-1, CANCEL-2, CANCEL-3.
 */
export function cancelBatch(
  stores: Stores,
  batchId: string,
  end: { nowMs: number; outputsExpireAtMs: number | null },
): Promise<boolean> {
  return stores.write((tx) => {
    const batch = tx.batches.byId(batchId);
    if (!batch || isTerminal(batch.status)) return false;
    const failed = tx.items.failPending(batchId, CANCELLED, end.nowMs);
    tx.batches.addCounts(batchId, { success: 0, fail: failed });
    return moveBatch(tx, batch, "cancelled", end.nowMs, { outputsExpireAtMs: end.outputsExpireAtMs });
  });
}
