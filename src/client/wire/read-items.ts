import { fieldsOf } from "../../kernel/json/fields.ts";
import { countOf, microsOf, numeric, textOf, usdOf } from "./facts.ts";

/** No service makes more images of one item. A higher count is not believed. */
const MOST_IMAGES_OF_AN_ITEM = 100;

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

/** Null when the value is not an item. A field that is missing, or holds something else, is null. */
export function readItem(value: unknown): BatchItem | null {
  const wire = fieldsOf(value);
  const [customId, said] = [textOf(wire?.custom_id), textOf(wire?.status)];
  if (wire === null || customId === null || said === null) return null;
  const status = said === "succeeded" ? "success" : said;
  const error = fieldsOf(wire.error);
  return {
    customId,
    status,
    mimeType: textOf(wire.mime_type),
    imageCount: countOf(wire.image_count, MOST_IMAGES_OF_AN_ITEM) ?? (status === "success" ? 1 : 0),
    promptPreview: textOf(wire.prompt_preview),
    error: error && {
      code: textOf(error.code) ?? "UNKNOWN",
      message: textOf(error.message) ?? "",
      source: textOf(error.source),
    },
    facts: factsOf(wire),
    raw: wire,
  };
}

function factsOf(wire: Record<string, unknown>): ItemFacts {
  const [provider, version] = [textOf(wire.provider), textOf(wire.model_version)];
  const seed = Number.isSafeInteger(wire.seed) ? (wire.seed as number) : null;
  const cost = usdOf(numeric(wire.upstream_cost));
  const notes = (Array.isArray(wire.notes) ? wire.notes : []).filter((note) => typeof note === "string");
  return {
    ...(provider === null ? {} : { provider }),
    ...(version === null ? {} : { model_version: version }),
    ...(seed === null ? {} : { seed }),
    ...(cost === null ? {} : { upstream_cost: cost }),
    ...(notes.length === 0 ? {} : { notes }),
  };
}

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
  /** Whether the service reports that its images are drawn, and its prices are no real money. */
  isPlay: boolean;
  raw: Record<string, unknown>;
}

/** Null when the value is not a model. */
export function readModel(value: unknown): ListedModel | null {
  const wire = fieldsOf(value);
  const id = textOf(wire?.id);
  if (wire === null || !id) return null;
  const pricing = fieldsOf(wire.pricing);
  const imageCostMicroUsd = microsOf(pricing?.batch_image, 0);
  // Prices without that of an image are not believed.
  const isPriced = imageCostMicroUsd !== null;
  return {
    id,
    maxReferenceImages: Number.isSafeInteger(wire.max_reference_images)
      ? (wire.max_reference_images as number)
      : null,
    imageCostMicroUsd,
    imageHoldMicroUsd: isPriced ? microsOf(pricing?.batch_hold, 0) : null,
    isPaid: isPriced && pricing?.paid === true,
    isPlay: isPriced && pricing?.play_money === true,
    raw: wire,
  };
}
