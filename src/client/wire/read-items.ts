import { z } from "zod";
import { numberToMicros } from "../../kernel/money.ts";
import { amount, text, usd } from "./read-batch.ts";

/** No service makes more images of one item. A higher count is not believed. */
const MOST_IMAGES_OF_AN_ITEM = 100;

const itemSchema = z.looseObject({
  custom_id: z.string(),
  status: z.string(),
  mime_type: text,
  image_count: z.int().min(0).max(MOST_IMAGES_OF_AN_ITEM).nullish().catch(null),
  prompt_preview: text,
  provider: text,
  model_version: text,
  seed: z.int().nullish().catch(null),
  upstream_cost: amount,
  notes: z.array(z.unknown()).nullish().catch(null),
  error: z.looseObject({ code: text, message: text, source: text }).nullish().catch(null),
});

/** Facts of an item under the names of the API and of `results.jsonl`. One that the service does not report is absent. */
export interface ItemFacts {
  /** The provider that made or refused the image. */
  provider?: string;
  model_version?: string;
  seed?: number;
  /** US dollars, as the upstream reports them. */
  upstream_cost?: number;
  notes?: string[];
}

/** An item as the client sees it. A missing field is null. */
export interface BatchItem {
  customId: string;
  status: "pending" | "success" | "failed" | (string & {});
  mimeType: string | null;
  imageCount: number;
  promptPreview: string | null;
  error: { code: string; message: string; source: string | null } | null;
  facts: ItemFacts;
  /** The object as it came. */
  raw: Record<string, unknown>;
}

/** Whether the service has images of an item. */
export function hasImages({ status, imageCount }: Pick<BatchItem, "status" | "imageCount">): boolean {
  return status === "success" && imageCount > 0;
}

/** Null when the value is not an item. */
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
    facts: factsOf(wire),
    raw: value as Record<string, unknown>,
  };
}

function factsOf(wire: z.infer<typeof itemSchema>): ItemFacts {
  const { provider, model_version, seed, upstream_cost } = wire;
  const notes = (wire.notes ?? []).filter((note): note is string => typeof note === "string");
  return {
    ...(provider == null ? {} : { provider }),
    ...(model_version == null ? {} : { model_version }),
    ...(seed == null ? {} : { seed }),
    ...(upstream_cost == null ? {} : { upstream_cost }),
    ...(notes.length === 0 ? {} : { notes }),
  };
}

const modelSchema = z.looseObject({
  id: z.string().min(1),
  max_reference_images: z.int().nullish().catch(null),
  pricing: z
    .looseObject({
      batch_image: usd.min(0),
      batch_hold: usd.min(0).nullish().catch(null),
      paid: z.boolean().nullish().catch(null),
    })
    .nullish()
    .catch(null),
});

/** An entry of the batch model list. */
export interface ListedModel {
  id: string;
  maxReferenceImages: number | null;
  /** The price of one image of a batch; null when the service does not report it. */
  imageCostMicroUsd: number | null;
  /** The amount that is held for one image; null when the service does not report it. */
  imageHoldMicroUsd: number | null;
  /** Whether the service reports that its images cost real money. */
  isPaid: boolean;
  raw: Record<string, unknown>;
}

/** Null when the value is not a model. */
export function readModel(value: unknown): ListedModel | null {
  const parsed = modelSchema.safeParse(value);
  if (!parsed.success) return null;
  const { id, max_reference_images, pricing } = parsed.data;
  return {
    id,
    maxReferenceImages: max_reference_images ?? null,
    imageCostMicroUsd: pricing ? numberToMicros(pricing.batch_image) : null,
    imageHoldMicroUsd: pricing?.batch_hold != null ? numberToMicros(pricing.batch_hold) : null,
    isPaid: pricing?.paid === true,
    raw: value as Record<string, unknown>,
  };
}
