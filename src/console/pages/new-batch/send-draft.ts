import type { BatchModel, BatchObject, CreateItemBody } from "../../../contract/batch-api.ts";
import { base64Of } from "../../api/base64.ts";
import { createBatch } from "../../api/batches.ts";
import type { CheckedDraft, DraftItem, DraftReference } from "./check-draft.ts";
import type { Draft } from "./draft.tsx";

/** The price of a draft, in US dollars: of its images, and of what is held until they are made. */
export function priceOf(
  { pricing }: BatchModel,
  { imageCount }: CheckedDraft,
): { cost: number; hold: number } {
  return { cost: imageCount * pricing.batch_image, hold: imageCount * pricing.batch_hold };
}

/**
 * Sends a draft, whose items `splitIntoBatches` has split. After a failure the same call goes on: batches that exist already are returned instead of made again. Throws
 * `ApiError`.
 */
export async function sendDraft(
  draft: Draft,
  parts: readonly DraftItem[][],
  model: BatchModel,
): Promise<BatchObject[]> {
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

async function referenceBody({ labels, source }: DraftReference) {
  const data = "blob" in source ? await base64Of(source.blob) : source.data;
  return { ...labels, mime_type: source.mimeType, data };
}
