import { nameImages } from "../downloads/manifest.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores } from "../ports/stores.ts";
import { moveBatch } from "./lifecycle.ts";
import { ReadBack } from "./read-back.ts";

/** Takes a running batch whose items all have ended to `processing_results`. */
export function startProcessing(stores: Stores, batchId: string, nowMs: number): Promise<boolean> {
  return stores.write((tx) => {
    const batch = tx.batches.byId(batchId);
    if (batch?.status !== "running" || tx.items.countByStatus(batchId).pending > 0) return false;
    return moveBatch(tx, batch, "processing_results", nowMs);
  });
}

/**
 * The work of `processing_results`: reads every stored image back, compares it with its size and hash, gives it its
 * name in the ZIP, and takes the batch to `settling`. An item whose file is gone or differs becomes a failure, and is
 * not paid for. Can be repeated at any point: nothing is written before everything is checked.
 * Rules: RESULT-1, ZIP-5.
 */
export async function processResults(
  deps: { stores: Stores; blobs: BlobStore },
  batchId: string,
  nowMs: () => number,
): Promise<boolean> {
  const outputs = deps.stores.read.outputs.ofBatch(batchId);
  const readBack = new ReadBack(deps.blobs);
  await readBack.read(outputs);
  return deps.stores.write((tx) => {
    const batch = tx.batches.byId(batchId);
    if (batch?.status !== "processing_results") return false;
    const good = readBack.failDamaged(tx, batch, outputs);
    const items = tx.items.page(batchId, { afterPosition: -1, limit: batch.itemCount });
    for (const { output, entryName } of nameImages(items, good)) {
      tx.outputs.setEntryName(output.itemId, output.imageIndex, entryName);
    }
    return moveBatch(tx, batch, "settling", nowMs());
  });
}
