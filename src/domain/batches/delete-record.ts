import { ImgbatchError } from "../../contract/errors.ts";
import { isTerminal } from "../../contract/statuses.ts";
import type { Feed } from "../feed.ts";
import type { Stores } from "../ports/stores.ts";

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
