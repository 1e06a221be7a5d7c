import type { ItemError } from "../../contract/statuses.ts";
import { nameImages } from "../downloads/entry-names.ts";
import { isIntact, readAhead } from "../downloads/piece-stream.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores, Transaction } from "../ports/stores.ts";
import type { BatchRecord, OutputRecord } from "../records.ts";
import { type BatchEnd, moveBatch } from "./lifecycle.ts";

const RESULT_MISSING: ItemError = {
  code: "RESULT_MISSING",
  message: "The image was made, but its file is missing or damaged.",
  source: "service",
};

/** What it takes to end a batch or an item. */
export interface ReadBackDeps {
  stores: Stores;
  blobs: BlobStore;
}

/** Reads each stored image of a batch once before money moves: a missing or damaged one is not paid for. */
export class ReadBack {
  readonly #blobs: BlobStore;
  /** Blob key → whether its bytes are those that the row describes. */
  readonly #isIntact = new Map<string, boolean>();

  constructor(blobs: BlobStore) {
    this.#blobs = blobs;
  }

  /** Reads those that were not read yet. Slow: not for a transaction. */
  async read(outputs: readonly OutputRecord[]): Promise<void> {
    const read = async (output: OutputRecord) =>
      [output.blobKey, await isIntact(this.#blobs, output)] as const;
    const unread = outputs.filter(({ blobKey }) => !this.#isIntact.has(blobKey));
    const all = readAhead(unread, { sizeOf: ({ sizeBytes }) => sizeBytes, read });
    for await (const [blobKey, isGood] of all) this.#isIntact.set(blobKey, isGood);
  }

  hasRead(outputs: readonly OutputRecord[]): boolean {
    return outputs.every(({ blobKey }) => this.#isIntact.has(blobKey));
  }

  /**
   * Makes failures of the items with a damaged or missing image. All of the outputs must have been read. Returns the
   * outputs that are left.
   */
  async failDamaged(
    tx: Transaction,
    batch: BatchRecord,
    outputs: readonly OutputRecord[],
  ): Promise<OutputRecord[]> {
    const damaged = outputs.filter(({ blobKey }) => this.#isIntact.get(blobKey) !== true);
    const itemIds = new Set(damaged.map((output) => output.itemId));
    for (const itemId of itemIds) {
      await tx.items.fail(itemId, RESULT_MISSING);
      await tx.outputs.removeOfItem(itemId);
    }
    await tx.batches.addCounts({ id: batch.id, success: -itemIds.size, fail: itemIds.size });
    return outputs.filter((output) => !itemIds.has(output.itemId));
  }
}

/**
 * The work of `settling`: in one transaction the price of the successful images is captured, the rest of the hold is
 * released, and the batch is `completed`. Repeating it changes nothing.
 */
export function settleBatch(stores: Stores, batchId: string, end: BatchEnd): Promise<boolean> {
  return stores.write(async (tx) => {
    const batch = await tx.batches.locked(batchId);
    if (batch?.status !== "settling") return false;
    return (await moveBatch(tx, batch, "completed", end.nowMs, { outputsExpireAtMs: end.outputsExpireAtMs }))
      .isMoved;
  });
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
  const readBack = new ReadBack(deps.blobs);
  await readBack.read(await deps.stores.read.outputs.ofBatch(batchId));
  return deps.stores.write(async (tx) => {
    const batch = await tx.batches.locked(batchId);
    if (batch?.status !== "processing_results") return false;
    const outputs = await tx.outputs.ofBatch(batchId);
    // New outputs appeared after the read-back: it is repeated.
    if (!readBack.hasRead(outputs)) return false;
    const good = await readBack.failDamaged(tx, batch, outputs);
    const items = await tx.items.page(batchId, { afterPosition: -1, limit: batch.itemCount });
    const named = nameImages(items, good);
    await tx.outputs.setEntryNames(named.map(({ output, entryName }) => ({ ...output, entryName })));
    return (await moveBatch(tx, batch, "settling", nowMs())).isMoved;
  });
}
