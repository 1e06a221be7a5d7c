import type { ItemError } from "../../contract/item-errors.ts";
import { type MadeImage, readOutput } from "../images/output-images.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { ImageInspector } from "../ports/image-inspector.ts";
import { type GeneratedImages, ProviderError } from "../ports/image-provider.ts";
import type { Stores } from "../ports/stores.ts";
import type { ItemRecord, OutputRecord } from "../records.ts";

/** An item that a worker holds a lease on. */
export type LeasedItem = ItemRecord & { leaseToken: string };

/**
 * Stores the images of an item and records its success. The files are durable before the row names them. Returns the
 * status of the item, or null when its lease was lost (it was cancelled, or leased again): then the files are removed.
 */
export async function finishItem(
  deps: { stores: Stores; blobs: BlobStore; inspector: ImageInspector },
  item: LeasedItem,
  { images, modelVersion }: GeneratedImages,
  nowMs: () => number,
): Promise<"success" | "failed" | null> {
  const fail = (error: ItemError) => failItem(deps.stores, item, { ...error, modelVersion }, nowMs());
  const first = images[0];
  if (!first) {
    const message = "The provider answered without an image.";
    return fail({ code: "EMPTY_IMAGE_OUTPUT", message, source: "provider" });
  }
  let inspected: MadeImage[];
  try {
    inspected = await readOutput(images, deps.inspector);
  } catch (error) {
    if (!(error instanceof ProviderError)) throw error;
    return fail({ code: error.code, message: error.message, source: error.source });
  }
  const outputs: OutputRecord[] = [];
  for (const [imageIndex, { bytes, facts }] of inspected.entries()) {
    const blobKey = outputKey(item, imageIndex);
    const stored = await deps.blobs.put(blobKey, bytes);
    const { id: itemId, batchId } = item;
    outputs.push({ itemId, batchId, imageIndex, blobKey, ...stored, ...facts, entryName: null });
  }
  const mimeType = inspected[0]?.facts.mimeType ?? null;
  const isOurs = await deps.stores.write(async (tx) => {
    const made = { mimeType, imageCount: outputs.length, modelVersion, error: null };
    const outcome = { status: "success" as const, ...made };
    if (!(await tx.items.finish(item.id, item.leaseToken, { ...outcome, finishedAtMs: nowMs() })).isOurs)
      return false;
    await tx.outputs.insertMany(outputs);
    await tx.batches.addCounts(item.batchId, { success: 1, fail: 0 });
    return true;
  });
  if (isOurs) return "success";
  // A commit that returned an error may have happened all the same: files that a row names stay.
  const named = new Set((await deps.stores.read.outputs.ofItem(item.id)).map((output) => output.blobKey));
  for (const { blobKey } of outputs) if (!named.has(blobKey)) await deps.blobs.delete(blobKey);
  return named.size > 0 ? "success" : null;
}

/** Records the final failure of an item. Returns null when its lease was lost. */
export async function failItem(
  stores: Stores,
  item: LeasedItem,
  { code, message, source, modelVersion = null }: ItemError & { modelVersion?: string | null },
  nowMs: number,
): Promise<"failed" | null> {
  const error: ItemError = { code, message, source };
  const outcome = { status: "failed" as const, mimeType: null, imageCount: 0, modelVersion, error };
  const isOurs = await stores.write(async (tx) => {
    if (!(await tx.items.finish(item.id, item.leaseToken, { ...outcome, finishedAtMs: nowMs })).isOurs)
      return false;
    await tx.batches.addCounts(item.batchId, { success: 0, fail: 1 });
    return true;
  });
  return isOurs ? "failed" : null;
}

/** Where the images of a batch are kept. */
export function outputsPrefix(batchId: string): string {
  return `outputs/${batchId}/`;
}

/** The lease is part of the name, so that a worker that lost it cannot touch the files of its successor. */
function outputKey(item: LeasedItem, imageIndex: number): string {
  return `${outputsPrefix(item.batchId)}${item.id}-${item.leaseToken.slice(0, 12)}-${imageIndex}`;
}
