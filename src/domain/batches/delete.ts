import { ImgbatchError } from "../../contract/errors.ts";
import { isTerminal } from "../../contract/statuses.ts";
import type { Log } from "../../kernel/log.ts";
import type { Feed } from "../feed.ts";
import { thumbnailsPrefix } from "../images/thumbnails.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores } from "../ports/stores.ts";
import type { ItemRecord } from "../records.ts";
import { outputsPrefix } from "./finish-item.ts";
import { moveBatch } from "./lifecycle.ts";

/**
 * Marks the images of an ended batch as deleted; its record and its payment stay. `purgeOutputs` follows. The next sweep
 * does it when it fails or the process dies in between. Returns whether the status changed now.
 * Throws `BATCH_IMAGE_OUTPUT_DELETE_NOT_READY` for a batch that has not ended.
 */
export function deleteOutputs(stores: Stores, batchId: string, nowMs: number): Promise<boolean> {
  return stores.write(async (tx) => {
    const batch = await tx.batches.locked(batchId);
    if (!batch || !isTerminal(batch.status)) {
      throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETE_NOT_READY");
    }
    return batch.status !== "output_deleted" && (await moveBatch(tx, batch, "output_deleted", nowMs)).isMoved;
  });
}

/**
 * Marks the images as deleted, publishes that on the feed, and removes the files. The next sweep removes files that
 * cannot be removed now.
 */
export async function dropOutputs(
  deps: { stores: Stores; blobs: BlobStore; feed: Feed; log: Log },
  batchId: string,
  nowMs: number,
): Promise<void> {
  if (!(await deleteOutputs(deps.stores, batchId, nowMs))) return;
  deps.feed.publish({ type: "batch", batchId, status: "output_deleted" });
  await purgeOutputs(deps, batchId, nowMs).catch((error) => {
    const facts = { batch: batchId, error: String(error) };
    deps.log.warn("image files could not be deleted; the next sweep tries again", facts);
  });
}

/** Removes the image files of a batch that is `output_deleted`. Can be repeated. */
export async function purgeOutputs(
  deps: { stores: Stores; blobs: BlobStore },
  batchId: string,
  nowMs: number,
): Promise<void> {
  await deps.blobs.deleteAll(outputsPrefix(batchId));
  await deps.blobs.deleteAll(thumbnailsPrefix(batchId));
  await deps.stores.write((tx) => tx.batches.update(batchId, { outputsPurgedAtMs: nowMs }));
}

const ONE_FILE =
  "The results of a batch job of a vendor's API are one file: delete all of its images, or none of them.";

/**
 * Deletes the images of one item of an ended batch; the item, its success and its payment stay, and the number of images that
 * it had. Can be repeated. A file that cannot be removed now goes with the others of the batch.
 * Throws `BATCH_IMAGE_OUTPUT_DELETE_NOT_READY` for a batch that has not ended, and for a batch job of a vendor's API, whose results
 * are one file.
 */
export async function deleteImages(
  { stores, blobs, feed, log }: { stores: Stores; blobs: BlobStore; feed: Feed; log: Log },
  batchId: string,
  { id: itemId, customId }: Pick<ItemRecord, "id" | "customId">,
  nowMs: number,
): Promise<void> {
  const outputs = await stores.write(async (tx) => {
    const batch = await tx.batches.locked(batchId);
    if (batch && batch.source !== "batch")
      throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETE_NOT_READY", ONE_FILE);
    if (!batch || !isTerminal(batch.status)) throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETE_NOT_READY");
    const found = await tx.outputs.ofItem(itemId);
    await tx.outputs.removeOfItem(itemId);
    if (found.length > 0) await tx.items.markDeleted(itemId, nowMs);
    return found;
  });
  if (outputs.length === 0) return;
  feed.publish({ type: "images-gone", batchId, customId });
  try {
    for (const { blobKey } of outputs) await blobs.delete(blobKey);
    // They are named by hashes, which items may share. The others are made again when somebody looks at them.
    await blobs.deleteAll(thumbnailsPrefix(batchId));
  } catch (error) {
    const facts = { batch: batchId, item: customId, error: String(error) };
    log.warn("image files could not be deleted; they go with the others of the batch", facts);
  }
}

/**
 * Hides the record of an ended batch from its key for good. The files go later, when their time comes.
 * Throws `BATCH_IMAGE_RECORD_DELETE_NOT_READY` for a batch that has not ended.
 */
export async function deleteRecord(
  { stores, feed }: { stores: Stores; feed: Feed },
  batchId: string,
  nowMs: number,
): Promise<void> {
  await stores.write(async (tx) => {
    const now = await tx.batches.locked(batchId);
    if (!now || !isTerminal(now.status)) throw new ImgbatchError("BATCH_IMAGE_RECORD_DELETE_NOT_READY");
    if (now.recordDeletedAtMs === null) await tx.batches.update(batchId, { recordDeletedAtMs: nowMs });
  });
  feed.publish({ type: "batch-gone", batchId });
}
