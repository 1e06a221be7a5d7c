import { z } from "zod";
import { numberToMicros } from "../../kernel/money.ts";
import { usd } from "./read-batch.ts";

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

/** More entries than any page has: they are read in one go. */
const MOST_ENTRIES_OF_A_PAGE = 100_000;

export function readPage(value: unknown): Page | null {
  const parsed = listSchema.safeParse(value);
  if (!parsed.success || parsed.data.data.length > MOST_ENTRIES_OF_A_PAGE) return null;
  const { data, has_more, next_cursor } = parsed.data;
  return { data, hasMore: has_more ?? null, nextCursor: next_cursor || null };
}

/** All pages of a list are in memory together. */
const MOST_BYTES_OF_A_LIST = 256 * 1024 * 1024;

/**
 * Returns a function that is given the next cursor and the size of each page of a list, and returns whether the list has
 * no end: a cursor comes again, and so would the pages after it, or all pages together are larger than any list.
 */
export function endlessness(): (cursor: string | null, pageBytes: number) => boolean {
  const seen = new Set<string>();
  let bytes = 0;
  return (cursor, pageBytes) => {
    bytes += pageBytes;
    if (bytes > MOST_BYTES_OF_A_LIST) return true;
    if (cursor === null) return false;
    const isKnown = seen.has(cursor);
    seen.add(cursor);
    return isKnown;
  };
}

/** No service makes more images of one item: a higher count is as good as none. */
const MOST_IMAGES_OF_AN_ITEM = 100;

const itemSchema = z.looseObject({
  custom_id: z.string(),
  status: z.string(),
  mime_type: text,
  image_count: z.int().min(0).max(MOST_IMAGES_OF_AN_ITEM).nullish().catch(null),
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
  pricing: z
    .looseObject({ batch_image: usd.min(0) })
    .nullish()
    .catch(null),
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
