import { DEFAULT_RATIO, imageSizePx } from "../contract/image-sizes.ts";
import { type ImageRequest, ProviderError, type ReferenceImage } from "../domain/ports/image-provider.ts";
import type { BatchRecord, ItemRecord, ReferenceRecord } from "../domain/records.ts";
import type { WorkerDeps } from "./deps.ts";

/**
 * The request that an item of a batch stands for, with its reference images read: batches make 1K images of the
 * default ratio. Throws `ProviderError` `RESULT_MISSING` when a reference image is gone.
 */
export async function buildImageRequest(
  deps: Pick<WorkerDeps, "stores" | "blobs">,
  batch: BatchRecord,
  item: ItemRecord,
): Promise<ImageRequest> {
  const references = deps.stores.read.references.ofSource(item.batchId, item.sourceIndex);
  return {
    model: batch.model,
    prompt: item.prompt,
    outputIndex: item.outputIndex,
    tier: "1K",
    ratio: DEFAULT_RATIO,
    size: imageSizePx("1K", DEFAULT_RATIO),
    mimeType: batch.mimeType,
    references: await readReferences(deps, references),
    storedReferences: references.flatMap(({ storageUri, mimeType }) =>
      storageUri === null ? [] : [{ uri: storageUri, mimeType }],
    ),
    attempt: item.attempts + 1,
    isRetryBatch: batch.parentBatchId !== null,
  };
}

async function readReferences(
  deps: Pick<WorkerDeps, "blobs">,
  references: readonly ReferenceRecord[],
): Promise<ReferenceImage[]> {
  const images: ReferenceImage[] = [];
  for (const { blobKey, mimeType } of references) {
    if (blobKey === null) continue;
    const bytes = await deps.blobs.read(blobKey);
    if (bytes === null) {
      throw new ProviderError("RESULT_MISSING", "A reference image is gone.", { source: "service" });
    }
    images.push({ bytes, mimeType });
  }
  return images;
}
