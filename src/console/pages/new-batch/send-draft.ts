import type { BatchObject } from "../../../contract/batch-api/batches.ts";
import type { CreateItemBody } from "../../../contract/batch-api/create-batch.ts";
import type { BatchModel } from "../../../contract/batch-api/models.ts";
import { DEFAULT_LIMITS } from "../../../contract/limits.ts";
import { base64Of } from "../../api/base64.ts";
import { createBatch } from "../../api/batches.ts";
import type { CheckedDraft, DraftItem, DraftReference } from "./check-draft.ts";
import type { Draft } from "./use-draft.ts";

/** Splits the items where a batch has as many as it may. */
export function splitItems(items: readonly DraftItem[]): DraftItem[][] {
  const { itemsPerBatch, outputImagesPerBatch, referenceBytesPerBatch } = DEFAULT_LIMITS;
  const parts: DraftItem[][] = [];
  let [images, bytes] = [0, 0];
  for (const item of items) {
    const part = parts.at(-1);
    const size = item.references.reduce((sum, { source }) => sum + sizeOf(source), 0);
    images += item.outputCount;
    bytes += size;
    const isFull =
      part?.length === itemsPerBatch || images > outputImagesPerBatch || bytes > referenceBytesPerBatch;
    if (part && !isFull) {
      part.push(item);
      continue;
    }
    parts.push([item]);
    [images, bytes] = [item.outputCount, size];
  }
  return parts;
}

function sizeOf(source: DraftReference["source"]): number {
  return "blob" in source ? source.blob.size : (source.data.length / 4) * 3;
}

/** The price of a draft, in US dollars: of its images, and of what is held until they are made. */
export function priceOf(
  { pricing }: BatchModel,
  { imageCount }: CheckedDraft,
): { cost: number; hold: number } {
  return { cost: imageCount * pricing.batch_image, hold: imageCount * pricing.batch_hold };
}

/**
 * Sends a draft. After a failure the same call goes on: batches that exist already are returned instead of made again. Throws
 * `ApiError`.
 */
export async function sendDraft(
  draft: Draft,
  { items }: CheckedDraft,
  model: BatchModel,
): Promise<BatchObject[]> {
  const parts = splitItems(items);
  const batches: BatchObject[] = [];
  for (const [index, part] of parts.entries()) {
    const name = draft.name.trim();
    const suffix = parts.length > 1 ? ` (${index + 1} of ${parts.length})` : "";
    const body = {
      model: model.id,
      ...(name === "" ? {} : { task_name: name + suffix }),
      items: await Promise.all(part.map(itemBody)),
    };
    const images = part.reduce((sum, { outputCount }) => sum + outputCount, 0);
    const maxCost = model.pricing.paid ? images * model.pricing.batch_hold : null;
    const idempotencyKey = parts.length > 1 ? `${draft.key}-${index + 1}` : draft.key;
    batches.push(await createBatch(body, { idempotencyKey, maxCost }));
  }
  return batches;
}

async function itemBody({ customId, prompt, outputCount, references }: DraftItem): Promise<CreateItemBody> {
  return {
    ...(customId === null ? {} : { custom_id: customId }),
    prompt,
    output_count: outputCount,
    ...(references.length === 0
      ? {}
      : { reference_images: await Promise.all(references.map(referenceBody)) }),
  };
}

async function referenceBody({ source, ...labels }: DraftReference) {
  const data = "blob" in source ? await base64Of(source.blob) : source.data;
  return { ...labels, mime_type: source.mimeType, data };
}
