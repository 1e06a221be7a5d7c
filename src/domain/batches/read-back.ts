import type { ItemError } from "../../contract/statuses.ts";
import { readAhead } from "../downloads/read-ahead.ts";
import { isIntact } from "../downloads/read-intact.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores, Transaction } from "../ports/stores.ts";
import type { BatchRecord, OutputRecord } from "../records.ts";

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
