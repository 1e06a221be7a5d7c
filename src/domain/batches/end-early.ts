import type { BatchStatus, ItemError } from "../../contract/statuses.ts";
import type { Transaction } from "../ports/stores.ts";
import type { BatchError, BatchRecord } from "../records.ts";
import { type BatchEnd, moveBatch } from "./lifecycle.ts";
import { ReadBack, type ReadBackDeps } from "./process-results.ts";

interface EarlyEnd {
  /** The batch ends only while it has one of these. */
  from: readonly BatchStatus[];
  to: "cancelled" | "failed";
  /** Why the batch as a whole failed. */
  error?: BatchError;
  /** Why items without an outcome fail. */
  itemError: ItemError;
}

/**
 * Ends a batch before all of its items have an outcome. The stored images are read back first. Then one transaction
 * fails what is pending, damaged or missing, captures the price of what is left, and releases the rest of the hold.
 * When an image was stored meanwhile, that image is read back too, before another try. Returns the custom ids of the
 * items that were pending, or null, without any change, when the batch had moved on.
 */
async function endEarly(
  { stores, blobs }: ReadBackDeps,
  batchId: string,
  { from, to, error, itemError }: EarlyEnd,
  endNow: () => BatchEnd,
): Promise<string[] | null> {
  const isHere = (batch: BatchRecord | null): batch is BatchRecord =>
    batch !== null && from.includes(batch.status);
  const readBack = new ReadBack(blobs);
  while (isHere(await stores.read.batches.byId(batchId))) {
    await readBack.read(await stores.read.outputs.ofBatch(batchId));
    const ended = await stores.write(async (tx) => {
      const batch = await tx.batches.locked(batchId);
      if (!isHere(batch)) return { pending: null };
      const outputs = await tx.outputs.ofBatch(batchId);
      if (!readBack.hasRead(outputs)) return null;
      await readBack.failDamaged(tx, batch, outputs);
      const { nowMs, outputsExpireAtMs } = endNow();
      const pending = await failPending(tx, batch, itemError, nowMs);
      const facts = { outputsExpireAtMs, ...(error ? { error } : {}) };
      const { isMoved } = await moveBatch(tx, batch, to, nowMs, facts);
      return { pending: isMoved ? pending : null };
    });
    if (ended !== null) return ended.pending;
  }
  return null;
}

/**
 * Fails every item of a batch that has no outcome, leased or not, and counts them. The transaction has locked the batch.
 * Returns the custom ids of the items.
 */
async function failPending(
  tx: Transaction,
  batch: Pick<BatchRecord, "id" | "itemCount">,
  error: ItemError,
  nowMs: number,
): Promise<string[]> {
  const filter = { status: "pending", afterPosition: -1, limit: batch.itemCount } as const;
  const customIds = (await tx.items.page(batch.id, filter)).map((item) => item.customId);
  const fail = await tx.items.failPending(batch.id, error, nowMs);
  await tx.batches.addCounts({ id: batch.id, success: 0, fail });
  return customIds;
}

const CANCELLED: ItemError = {
  code: "CANCELLED",
  message: "The batch was cancelled before this item was made.",
  source: "service",
};

/**
 * Cancels a batch: unfinished items fail, intact images are paid for and stay, and the rest of the hold is released.
 * Running work loses its lease, so a late result is dropped. Returns the custom ids of the unfinished items, or null,
 * without any change, when the batch had ended.
 */
export function cancelBatch(
  deps: ReadBackDeps,
  batchId: string,
  endNow: () => BatchEnd,
): Promise<string[] | null> {
  const from = ["queued", "running", "processing_results", "settling"] as const;
  return endEarly(deps, batchId, { from, to: "cancelled", itemError: CANCELLED }, endNow);
}

/**
 * Ends a batch that cannot be processed as a whole. Pending items fail, intact images are paid for, and the rest of the
 * hold is released. Returns the custom ids of the items that failed with it, or null when the batch had moved on.
 */
export function failBatch(
  deps: ReadBackDeps,
  batchId: string,
  error: BatchError,
  endNow: () => BatchEnd,
): Promise<string[] | null> {
  const { message, source } = error;
  const from = ["queued", "running", "processing_results"] as const;
  const itemError = { code: "PROVIDER_ITEM_FAILED", message, source } as const;
  return endEarly(deps, batchId, { from, to: "failed", error, itemError }, endNow);
}
