import { z } from "zod";
import { numberToMicros } from "../kernel/money.ts";

const text = z.string().nullish().catch(null);

const listSchema = z.looseObject({
  data: z.array(z.unknown()),
  has_more: z.boolean().nullish().catch(null),
  next_cursor: text,
});

export interface Page {
  data: unknown[];
  /** Null when the service does not say. */
  hasMore: boolean | null;
  /** Null when the service names none: then the next page is asked for by offset. */
  nextCursor: string | null;
}

export function readPage(value: unknown): Page | null {
  const parsed = listSchema.safeParse(value);
  if (!parsed.success) return null;
  const { data, has_more, next_cursor } = parsed.data;
  return { data, hasMore: has_more ?? null, nextCursor: next_cursor || null };
}

/** Answers of each cursor whether it came before: then the pages after it would come again too. */
export function repetitions(): (cursor: string | null) => boolean {
  const seen = new Set<string>();
  return (cursor) => {
    if (cursor === null) return false;
    const isKnown = seen.has(cursor);
    seen.add(cursor);
    return isKnown;
  };
}

const itemSchema = z.looseObject({
  custom_id: z.string(),
  status: z.string(),
  mime_type: text,
  image_count: z.int().nullish().catch(null),
  prompt_preview: text,
  error: z.looseObject({ code: text, message: text, source: text }).nullish().catch(null),
});

/** An item as the client sees it; what is missing is null. */
export interface BatchItem {
  customId: string;
  status: "pending" | "success" | "failed" | (string & {});
  mimeType: string | null;
  imageCount: number;
  promptPreview: string | null;
  error: { code: string; message: string; source: string | null } | null;
  /** The object as it came. */
  raw: Record<string, unknown>;
}

/** Whether the service has images of an item. */
export function hasImages({ status, imageCount }: Pick<BatchItem, "status" | "imageCount">): boolean {
  return status === "success" && imageCount > 0;
}

export function readItem(value: unknown): BatchItem | null {
  const parsed = itemSchema.safeParse(value);
  if (!parsed.success) return null;
  const wire = parsed.data;
  const status = wire.status === "succeeded" ? "success" : wire.status;
  const { error } = wire;
  return {
    customId: wire.custom_id,
    status,
    mimeType: wire.mime_type ?? null,
    imageCount: wire.image_count ?? (status === "success" ? 1 : 0),
    promptPreview: wire.prompt_preview ?? null,
    error: error
      ? { code: error.code ?? "UNKNOWN", message: error.message ?? "", source: error.source ?? null }
      : null,
    raw: value as Record<string, unknown>,
  };
}

const modelSchema = z.looseObject({
  id: z.string().min(1),
  max_reference_images: z.int().nullish().catch(null),
  pricing: z.looseObject({ batch_image: z.number() }).nullish().catch(null),
});

/** An entry of the batch model list. */
export interface ListedModel {
  id: string;
  maxReferenceImages: number | null;
  /** What one image of a batch costs; null when the service does not say. */
  imageCostMicroUsd: number | null;
  raw: Record<string, unknown>;
}

export function readModel(value: unknown): ListedModel | null {
  const parsed = modelSchema.safeParse(value);
  if (!parsed.success) return null;
  const { id, max_reference_images, pricing } = parsed.data;
  return {
    id,
    maxReferenceImages: max_reference_images ?? null,
    imageCostMicroUsd: pricing ? numberToMicros(pricing.batch_image) : null,
    raw: value as Record<string, unknown>,
  };
}
