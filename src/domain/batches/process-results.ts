import { IMAGE_EXTENSIONS } from "../../contract/image-types.ts";
import type { ItemError } from "../../contract/item-errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { assignEntryNames } from "../downloads/entry-names.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores } from "../ports/stores.ts";
import type { OutputRecord } from "../records.ts";
import { moveBatch } from "./lifecycle.ts";

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
  const missing = new Set<number>();
  for (const output of outputs) {
    if (!(await isIntact(deps.blobs, output))) missing.add(output.itemId);
  }
  return deps.stores.write((tx) => {
    const batch = tx.batches.byId(batchId);
    if (batch?.status !== "processing_results") return false;
    const customIds = new Map<number, string>();
    for (const { itemId } of outputs) {
      if (!customIds.has(itemId)) customIds.set(itemId, tx.items.byId(itemId)?.customId ?? String(itemId));
    }
    for (const itemId of missing) {
      tx.items.fail(itemId, RESULT_MISSING);
      tx.outputs.removeOfItem(itemId);
    }
    tx.batches.addCounts(batchId, { success: -missing.size, fail: missing.size });
    const good = outputs.filter((output) => !missing.has(output.itemId));
    const names = assignEntryNames(
      good.map(({ itemId, imageIndex, mimeType }) => ({
        customId: customIds.get(itemId) ?? "",
        imageIndex,
        extension: IMAGE_EXTENSIONS[mimeType],
      })),
    );
    good.forEach((output, i) => {
      tx.outputs.setEntryName(output.itemId, output.imageIndex, names[i] ?? "");
    });
    return moveBatch(tx, batch, "settling", nowMs());
  });
}

const RESULT_MISSING: ItemError = {
  code: "RESULT_MISSING",
  message: "The image was made, but its file is missing or damaged.",
  source: "service",
};

async function isIntact(blobs: BlobStore, output: OutputRecord): Promise<boolean> {
  const bytes = await blobs.read(output.blobKey);
  return bytes !== null && bytes.length === output.sizeBytes && sha256Hex(bytes) === output.sha256;
}
