import type { ItemError } from "../../contract/item-errors.ts";
import { isTerminal } from "../../contract/statuses.ts";
import type { Stores } from "../ports/stores.ts";
import { failPending } from "./fail-pending.ts";
import { moveBatch } from "./lifecycle.ts";

const CANCELLED: ItemError = {
  code: "CANCELLED",
  message: "The batch was cancelled before this item was made.",
  source: "service",
};

/**
 * Cancels a batch, in one transaction: what is not finished fails, what is finished is paid for and stays, the rest of
 * the hold goes back. Work that is under way loses its lease with it, so a late result is dropped. Answers the
 * custom ids of the items that failed with it, or null, without any change, when the batch had ended.
 * Rules: CANCEL-1, CANCEL-2, CANCEL-3.
 */
export function cancelBatch(
  stores: Stores,
  batchId: string,
  end: { nowMs: number; outputsExpireAtMs: number | null },
): Promise<string[] | null> {
  return stores.write(async (tx) => {
    const batch = await tx.batches.byId(batchId);
    if (!batch || isTerminal(batch.status)) return null;
    const failed = await failPending(tx, batch, CANCELLED, end.nowMs);
    const { outputsExpireAtMs } = end;
    return (await moveBatch(tx, batch, "cancelled", end.nowMs, { outputsExpireAtMs })).isMoved
      ? failed
      : null;
  });
}
