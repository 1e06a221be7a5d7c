import { type BatchStatus, type ItemError, isTerminal } from "../../contract/statuses.ts";
import { tracer } from "../../kernel/tracing.ts";
import { isIntact, readAhead } from "../downloads/piece-stream.ts";
import { nameImages } from "../downloads/zip.ts";
import { mayBeBilled } from "../jobs/job-rules.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores, Transaction } from "../ports/stores.ts";
import type { BatchError, BatchRecord, OutputRecord } from "../records.ts";
import { type BatchEnd, moveBatch } from "./lifecycle.ts";

const RESULT_MISSING: ItemError = {
  code: "RESULT_MISSING",
  message: "The image was made, but its file is missing or damaged.",
  source: "service",
};

interface ReadBackDeps {
  stores: Stores;
  blobs: BlobStore;
}

/** Blob key → whether its bytes are those that the row describes. */
type ReadBack = Map<string, boolean>;

/**
 * Reads each stored image of a batch once before money moves: a missing or damaged one is not paid for. Slow: not for a
 * transaction.
 */
async function readBack({ stores, blobs }: ReadBackDeps, batchId: string, known: ReadBack): Promise<void> {
  const outputs = await stores.read.outputs.ofBatch(batchId);
  const read = async (output: OutputRecord) => [output.blobKey, await isIntact(blobs, output)] as const;
  const unread = outputs.filter(({ blobKey }) => !known.has(blobKey));
  const all = readAhead(unread, { sizeOf: ({ sizeBytes }) => sizeBytes, read });
  for await (const [blobKey, isGood] of all) known.set(blobKey, isGood);
}

/**
 * Makes failures of the items with a damaged or missing image. Returns the outputs that are left; null, without any
 * change, when one was not read back.
 */
async function failDamaged(
  tx: Transaction,
  batchId: string,
  known: ReadBack,
): Promise<OutputRecord[] | null> {
  const outputs = await tx.outputs.ofBatch(batchId);
  if (!outputs.every(({ blobKey }) => known.has(blobKey))) return null;
  const damaged = outputs.filter(({ blobKey }) => known.get(blobKey) !== true);
  const itemIds = new Set(damaged.map((output) => output.itemId));
  for (const itemId of itemIds) {
    await tx.items.fail(itemId, RESULT_MISSING);
    await tx.outputs.removeOfItem(itemId);
  }
  await tx.batches.addCounts({ id: batchId, success: -itemIds.size, fail: itemIds.size });
  return outputs.filter((output) => !itemIds.has(output.itemId));
}

/**
 * The work of `settling`: in one transaction the price of the successful images is captured, the rest of the hold is
 * released, and the batch is `completed`. Repeating it changes nothing.
 */
export function settleBatch(stores: Stores, batchId: string, end: BatchEnd): Promise<boolean> {
  const settle = () =>
    stores.write(async (tx) => {
      const batch = await tx.batches.locked(batchId);
      if (batch?.status !== "settling") return false;
      const { nowMs, outputsExpireAtMs } = end;
      return (await moveBatch(tx, batch, "completed", nowMs, { outputsExpireAtMs })).isMoved;
    });
  return tracer.span("settle", { "imgbatch.batch.id": batchId }, settle, { parent: null });
}

/**
 * Takes a running batch whose items all have ended to `processing_results`. The worker that does it goes on with the
 * batch: it owns it from then on.
 */
export function startProcessing(
  stores: Stores,
  batchId: string,
  workerId: string,
  nowMs: number,
): Promise<boolean> {
  return stores.write(async (tx) => {
    const batch = await tx.batches.locked(batchId);
    if (batch?.status !== "running" || (await tx.items.countByStatus(batchId)).pending > 0) return false;
    const { isMoved } = await moveBatch(tx, batch, "processing_results", nowMs);
    // The process that owned it has nothing left to do.
    if (isMoved) await tx.batches.setOwner(batchId, workerId);
    return isMoved;
  });
}

/**
 * The work of `processing_results`: reads every stored image back, compares it with its size and hash, gives it its
 * name in the ZIP, and takes the batch to `settling`. An item whose file is missing or damaged becomes a failure and
 * is not paid for. Can be repeated at any point: nothing is written before everything is checked.
 */
export async function processResults(
  deps: ReadBackDeps,
  batchId: string,
  nowMs: () => number,
): Promise<boolean> {
  const known: ReadBack = new Map();
  for (;;) {
    await readBack(deps, batchId, known);
    const isMoved = await deps.stores.write(async (tx) => {
      const batch = await tx.batches.locked(batchId);
      if (batch?.status !== "processing_results") return false;
      const good = await failDamaged(tx, batchId, known);
      // New outputs appeared after the read-back: it is repeated.
      if (good === null) return null;
      const items = await tx.items.page(batchId, { afterPosition: -1, limit: batch.itemCount });
      const named = nameImages(items, good);
      await tx.outputs.setEntryNames(named.map(({ output, entryName }) => ({ ...output, entryName })));
      return (await moveBatch(tx, batch, "settling", nowMs())).isMoved;
    });
    if (isMoved !== null) return isMoved;
  }
}

interface EarlyEnd {
  /** The batch ends only while it has one of these. */
  from: readonly BatchStatus[];
  to: "cancelled" | "failed";
  /** Why the batch as a whole failed. */
  error?: BatchError;
  /** Why items without an outcome fail. */
  itemError: ItemError;
  /** The same for items of which a request has left, and no answer is known. Default: as the others. */
  sentItemError?: ItemError | undefined;
}

/**
 * Ends a batch before all of its items have an outcome. The stored images are read back first. Then one transaction
 * fails what is pending, damaged or missing, captures the price of what is left, and releases the rest of the hold.
 * When an image was stored meanwhile, that image is read back too, before another try. Returns the custom ids of the
 * items that were pending, or null, without any change, when the batch had moved on.
 */
async function endEarly(
  deps: ReadBackDeps,
  batchId: string,
  { from, to, error, itemError, sentItemError }: EarlyEnd,
  endNow: () => BatchEnd,
): Promise<string[] | null> {
  const isHere = (batch: BatchRecord | null): batch is BatchRecord =>
    batch !== null && from.includes(batch.status);
  const { stores } = deps;
  const known: ReadBack = new Map();
  while (isHere(await stores.read.batches.byId(batchId))) {
    await readBack(deps, batchId, known);
    const ended = await stores.write(async (tx) => {
      const batch = await tx.batches.locked(batchId);
      if (!isHere(batch)) return { pending: null };
      if ((await failDamaged(tx, batchId, known)) === null) return null;
      const { nowMs, outputsExpireAtMs } = endNow();
      const pending = await failPending(tx, batch, { itemError, sentItemError }, nowMs);
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
  batch: Pick<BatchRecord, "id" | "itemCount" | "price">,
  { itemError, sentItemError = itemError }: Pick<EarlyEnd, "itemError" | "sentItemError">,
  nowMs: number,
): Promise<string[]> {
  const filter = { status: "pending", afterPosition: -1, limit: batch.itemCount } as const;
  const customIds = (await tx.items.page(batch.id, filter)).map((item) => item.customId);
  if (batch.price.isFree !== true) {
    const jobs = await tx.upstreamJobs.ofBatch(batch.id);
    for (const job of jobs) if (mayBeBilled(job)) await tx.items.markJob(job.id, "once", "no");
  }
  const sent = await tx.items.failPending(batch.id, sentItemError, nowMs, { isMaybePaid: true });
  const fail = sent + (await tx.items.failPending(batch.id, itemError, nowMs));
  await tx.batches.addCounts({ id: batch.id, success: 0, fail });
  return customIds;
}

const CANCELLED: ItemError = {
  code: "CANCELLED",
  message: "The batch was cancelled, and this image was not made.",
  source: "service",
};

const CANCELLED_UNKNOWN: ItemError = {
  code: "CANCELLED",
  message: "The batch was cancelled. The upstream had been asked for this image and may bill it.",
  source: "service",
};

/** Records that a batch is to be cancelled: nothing is begun for it any more. */
export async function askToCancel(stores: Stores, batchId: string, nowMs: number): Promise<void> {
  const batch = await stores.read.batches.byId(batchId);
  if (batch === null || isTerminal(batch.status) || batch.cancelAskedAtMs !== null) return;
  await stores.write((tx) => tx.batches.update(batchId, { goesOn: "no", cancelAskedAtMs: nowMs }));
}

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
  const errors = { itemError: CANCELLED, sentItemError: CANCELLED_UNKNOWN };
  return endEarly(deps, batchId, { from, to: "cancelled", ...errors }, endNow);
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
