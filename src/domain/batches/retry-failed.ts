import { ImgbatchError } from "../../contract/errors.ts";
import { isRefusalCode } from "../../contract/item-errors.ts";
import { isTerminal } from "../../contract/statuses.ts";
import type { GroupEntry } from "../models.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores } from "../ports/stores.ts";
import type { BatchRecord, ItemRecord } from "../records.ts";
import { checkRequest, type RequestRules } from "./check-request.ts";
import { type CreateBatchDeps, createBatch } from "./create-batch.ts";

/**
 * Makes the failed items of an ended batch again, as a new batch of the same key that is linked to it. Throws what
 * creating a batch throws, and `USAGE` when there is nothing to retry.
 */
export async function retryFailed(
  deps: CreateBatchDeps & Omit<RequestRules, "group"> & { groups: readonly GroupEntry[] },
  batchId: string,
): Promise<BatchRecord> {
  const batch = await deps.stores.read.batches.byId(batchId);
  const key = batch === null ? null : await deps.stores.read.keys.byId(batch.apiKeyId);
  const group = deps.groups.find(({ name }) => name === key?.group);
  if (batch === null || key === null || !group) throw new ImgbatchError("BATCH_IMAGE_NOT_FOUND");
  const request = await checkRequest(await retryRequest(deps, batch), { ...deps, group });
  return (await createBatch(deps, { key, group }, request, null)).batch;
}

/**
 * The create request that makes the failed items of an ended batch again, linked to it as its parent. Items that were
 * refused for what they ask are left out. Throws `USAGE` when nothing is left, or when the inputs are gone already.
 */
export async function retryRequest(
  deps: { stores: Stores; blobs: BlobStore },
  batch: BatchRecord,
): Promise<object> {
  if (!isTerminal(batch.status)) throw new ImgbatchError("USAGE", "The batch has not ended yet.");
  const { read } = deps.stores;
  const failed = await read.items.page(batch.id, {
    status: "failed",
    afterPosition: -1,
    limit: batch.itemCount,
  });
  const wanted = failed.filter((item) => item.error === null || !isRefusalCode(item.error.code));
  if (wanted.length === 0) {
    const message =
      failed.length === 0 ? "No item has failed." : "The failed items were refused for what they ask.";
    throw new ImgbatchError("USAGE", message);
  }
  return {
    model: batch.model,
    task_name: batch.taskName,
    parent_batch_id: batch.id,
    response_mime_type: batch.mimeType,
    ...(batch.metadata ? { metadata: batch.metadata } : {}),
    items: await Promise.all(wanted.map((item) => itemRequest(deps, item))),
  };
}

async function itemRequest(deps: { stores: Stores; blobs: BlobStore }, item: ItemRecord): Promise<object> {
  const references: object[] = [];
  for (const reference of await deps.stores.read.references.ofSource(item.batchId, item.sourceIndex)) {
    const { referenceId: id, type, mimeType: mime_type, blobKey, storageUri } = reference;
    const bytes = blobKey === null ? null : await deps.blobs.read(blobKey);
    if (blobKey !== null && bytes === null) {
      throw new ImgbatchError("USAGE", "The reference images of this batch are gone; submit it again.");
    }
    references.push({
      mime_type,
      ...(id === null ? {} : { id }),
      ...(type === null ? {} : { type }),
      ...(bytes === null ? { storage_uri: storageUri } : { data: bytes.toString("base64") }),
    });
  }
  const { customId: custom_id, prompt } = item;
  return { custom_id, prompt, ...(references.length > 0 ? { reference_images: references } : {}) };
}
