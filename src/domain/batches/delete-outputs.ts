import { ImgbatchError } from "../../contract/errors.ts";
import { isTerminal } from "../../contract/statuses.ts";
import type { Log } from "../../kernel/log.ts";
import type { Feed } from "../feed.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores } from "../ports/stores.ts";
import { outputsPrefix } from "./finish-item.ts";
import { moveBatch } from "./lifecycle.ts";

/**
 * Says that the images of an ended batch are gone; its record and what was paid stay. `purgeOutputs` follows, and is
 * done by the next sweep when it fails or the process dies in between. Answers whether the status changed now.
 * Throws `BATCH_IMAGE_OUTPUT_DELETE_NOT_READY` for a batch that has not ended.
 */
export function deleteOutputs(stores: Stores, batchId: string, nowMs: number): Promise<boolean> {
  return stores.write(async (tx) => {
    const batch = await tx.batches.byId(batchId);
    if (!batch || !isTerminal(batch.status)) {
      throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETE_NOT_READY");
    }
    return batch.status !== "output_deleted" && (await moveBatch(tx, batch, "output_deleted", nowMs)).isMoved;
  });
}

/**
 * Both at once: says that the images are gone, tells the feed, and removes the files. Files that cannot be removed now
 * are left to the next sweep.
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

/** Removes the image files of a batch whose status says that they are gone. Can be repeated. */
export async function purgeOutputs(
  deps: { stores: Stores; blobs: BlobStore },
  batchId: string,
  nowMs: number,
): Promise<void> {
  await deps.blobs.deleteAll(outputsPrefix(batchId));
  await deps.stores.write((tx) => tx.batches.update(batchId, { outputsPurgedAtMs: nowMs }));
}
