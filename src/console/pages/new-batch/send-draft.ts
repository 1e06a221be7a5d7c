import type { BatchObject } from "../../../contract/batch-api/batches.ts";
import type { CreateItemBody } from "../../../contract/batch-api/create-batch.ts";
import type { BatchModel } from "../../../contract/batch-api/models.ts";
import type { Limits } from "../../../contract/limits.ts";
import { base64Of } from "../../api/base64.ts";
import { createBatch } from "../../api/batches.ts";
import type { CheckedDraft, DraftItem, DraftReference } from "./check-draft.ts";
import type { Draft } from "./draft.tsx";

/** Splits the items where a batch has as many as it may. */
export function splitItems(items: readonly DraftItem[], limits: Limits): DraftItem[][] {
  const parts: DraftItem[][] = [];
  let sum: Sums = NOTHING;
  for (const item of items) {
    const part = parts.at(-1);
    const more = plus(sum, sumsOf(item));
    if (part && fits(more, limits)) {
      part.push(item);
      sum = more;
    } else {
      parts.push([item]);
      sum = sumsOf(item);
    }
  }
  return parts;
}

/** How much of a batch some items take. */
interface Sums {
  items: number;
  images: number;
  references: number;
  referenceBytes: number;
  bodyBytes: number;
}

const NOTHING: Sums = { items: 0, images: 0, references: 0, referenceBytes: 0, bodyBytes: 0 };
/** The most that the JSON of an item, or of a reference, has beside its texts. */
const FRAME_BYTES = 600;
/** The most that UTF-8 takes for a character of JavaScript. */
const BYTES_PER_CHAR = 3;

function sumsOf({ prompt, outputCount, references }: DraftItem): Sums {
  const referenceBytes = references.reduce((sum, { source }) => sum + sizeOf(source), 0);
  const bodyBytes =
    prompt.length * BYTES_PER_CHAR + (referenceBytes / 3) * 4 + (references.length + 1) * FRAME_BYTES;
  return { items: 1, images: outputCount, references: references.length, referenceBytes, bodyBytes };
}

function plus(a: Sums, b: Sums): Sums {
  return {
    items: a.items + b.items,
    images: a.images + b.images,
    references: a.references + b.references,
    referenceBytes: a.referenceBytes + b.referenceBytes,
    bodyBytes: a.bodyBytes + b.bodyBytes,
  };
}

function fits(sums: Sums, limits: Limits): boolean {
  return (
    sums.items <= limits.itemsPerBatch &&
    sums.images <= limits.outputImagesPerBatch &&
    sums.references <= limits.referenceImagesPerBatch &&
    sums.referenceBytes <= limits.referenceBytesPerBatch &&
    sums.bodyBytes <= limits.createBodyBytes
  );
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
 * Sends a draft, whose items `splitItems` has split. After a failure the same call goes on: batches that exist already are returned instead of made again. Throws
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

async function referenceBody({ source, ...labels }: DraftReference) {
  const data = "blob" in source ? await base64Of(source.blob) : source.data;
  return { ...labels, mime_type: source.mimeType, data };
}
