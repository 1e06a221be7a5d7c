import { ImgbatchError } from "../../contract/errors.ts";
import { isRefusalCode, isTerminal } from "../../contract/statuses.ts";
import type { CheckedImage } from "../checked-content.ts";
import { imageInBlob } from "../images/sent-image.ts";
import { batchModelsOf, type GroupEntry, type ModelEntry } from "../models.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores } from "../ports/stores.ts";
import type { BatchRecord, ItemRecord } from "../records.ts";
import { type CheckedItem, type CheckedRequest, requestHash } from "./checked-request.ts";
import { type CreateBatchDeps, createBatch, refuseToRetryJob } from "./create-batch.ts";

interface RetryOptions {
  /** As for `createBatch`; default: null. */
  idempotencyKey?: string | null;
  /** See `Caller`. */
  consentMicroUsd?: number | null | undefined;
  /** The items to make again. Default: all failed ones that were not refused. */
  customIds?: readonly string[] | null;
}

/**
 * Makes the failed items of an ended batch again, as a new batch of the same key that links it as its parent. Items
 * that were refused for their content are left out. Throws the errors of `createBatch`; `BATCH_IMAGE_NOT_FOUND` for an
 * unknown batch; `BATCH_IMAGE_NOT_READY` before it has ended; `BATCH_IMAGE_INVALID_ITEMS` when no item can be retried, when one of
 * those that are named cannot, and for a batch job of a vendor's API;
 * `BATCH_IMAGE_INVALID_MODEL` when its key may not use the model any more; and
 * `BATCH_IMAGE_INVALID_REFERENCE_IMAGE` when a reference image is gone or damaged.
 */
export async function retryFailed(
  deps: CreateBatchDeps & { groups: readonly GroupEntry[]; models: readonly ModelEntry[] },
  batchId: string,
  { idempotencyKey = null, consentMicroUsd = null, customIds = null }: RetryOptions = {},
): ReturnType<typeof createBatch> {
  const batch = await deps.stores.read.batches.byId(batchId);
  const key = batch === null ? null : await deps.stores.read.keys.byId(batch.apiKeyId);
  const group = deps.groups.find(({ name }) => name === key?.group);
  if (batch === null || key === null || !group) throw new ImgbatchError("BATCH_IMAGE_NOT_FOUND");
  refuseToRetryJob(batch);
  if (!isTerminal(batch.status)) {
    throw new ImgbatchError("BATCH_IMAGE_NOT_READY", "The batch has not ended yet.");
  }
  const wanted = chosenOf(await retriableItems(deps.stores, batch), customIds);
  const model = batchModelsOf(group, deps.models).find(({ id }) => id === batch.model);
  if (!model) {
    const message = `The model ${batch.model} is not in the batch model list of this key any more.`;
    throw new ImgbatchError("BATCH_IMAGE_INVALID_MODEL", message);
  }
  const request = await requestFor(deps, batch, model, wanted);
  return createBatch(deps, { key, group, consentMicroUsd }, request, idempotencyKey);
}

async function retriableItems(stores: Stores, batch: BatchRecord): Promise<ItemRecord[]> {
  const failed = await stores.read.items.page(batch.id, {
    status: "failed",
    afterPosition: -1,
    limit: batch.itemCount,
  });
  const wanted = failed.filter((item) => item.error === null || !isRefusalCode(item.error.code));
  if (wanted.length > 0) return wanted;
  const message =
    failed.length === 0 ? "No item has failed." : "The failed items were refused for what they ask.";
  throw new ImgbatchError("BATCH_IMAGE_INVALID_ITEMS", message);
}

function chosenOf(items: ItemRecord[], customIds: readonly string[] | null): ItemRecord[] {
  if (customIds === null) return items;
  const chosen = new Set(customIds);
  const kept = items.filter(({ customId }) => chosen.delete(customId));
  const [unknown] = chosen;
  if (unknown === undefined) return kept;
  const message = `custom_ids: ${JSON.stringify(unknown)} is not a failed item of this batch that can be made again`;
  throw new ImgbatchError("BATCH_IMAGE_INVALID_ITEMS", message, { param: "custom_ids" });
}

/** Stored images have passed every check, so they are not checked again. */
async function requestFor(
  deps: { stores: Stores; blobs: BlobStore },
  batch: BatchRecord,
  model: ModelEntry,
  wanted: readonly ItemRecord[],
): Promise<CheckedRequest> {
  const items: CheckedItem[] = [];
  for (const item of wanted) {
    const { customId, prompt, earlier, options } = item;
    items.push({ customId, prompt, earlier, outputCount: 1, images: await imagesOf(deps, item), options });
  }
  const { taskName, mimeType, metadata } = batch;
  const asked = { modelId: model.id, taskName, parentBatchId: batch.id, mimeType, metadata, items };
  const { modelId: _, ...request } = asked;
  return { ...request, model, hash: requestHash(asked) };
}

async function imagesOf(
  { stores, blobs }: { stores: Stores; blobs: BlobStore },
  item: ItemRecord,
): Promise<CheckedImage[]> {
  const images: CheckedImage[] = [];
  for (const reference of await stores.read.references.ofSource(item.batchId, item.sourceIndex)) {
    const { referenceId: id, type, mimeType, blobKey, sha256 } = reference;
    // A repeat with a known idempotency key needs no bytes; whoever reads them finds that they are gone.
    const sizeBytes = (await blobs.sizeOf(blobKey)) ?? 0;
    const image = imageInBlob(blobs, blobKey, { sizeBytes, sha256 }, referencesGone);
    images.push({ ...image, id, type, mimeType });
  }
  return images;
}

function referencesGone(): ImgbatchError {
  const message = "The reference images of this batch are gone; submit it again.";
  return new ImgbatchError("BATCH_IMAGE_INVALID_REFERENCE_IMAGE", message);
}
