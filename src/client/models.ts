import { readAnnouncedPixels } from "../contract/batch-api.ts";
import { MOST_SEED, type PixelSizes } from "../contract/image-formats.ts";
import { ANNOUNCED_LIMITS, type Limits } from "../contract/limits.ts";
import { routes } from "../contract/routes.ts";
import type { Http } from "../http/http.ts";
import { fieldsOf } from "../kernel/json.ts";
import { microsOf, readPage, textOf, textsOf, unexpectedAnswer } from "./answers.ts";

/** The values that the options of an item may have with a model. */
export interface TakenOptions {
  aspectRatios: readonly string[];
  sizes: readonly string[];
  /** The exact pixels that it takes besides. */
  pixels: PixelSizes | "any" | null;
  qualities: readonly string[];
  defaultQuality: string | null;
  backgrounds: readonly string[];
  seed: boolean;
  maxSeed: number;
  negativePrompt: boolean;
}

/** What an image costs in a size and quality, in micro-dollars. */
interface ListedPrice {
  size: string;
  quality: string | null;
  imageMicroUsd: number;
  /** The amount that is held for it. */
  holdMicroUsd: number;
}

/** An entry of the batch model list. */
export interface ListedModel {
  id: string;
  /** The provider whose prices these are; null when the service does not say. */
  provider: string | null;
  maxReferenceImages: number | null;
  /** Null when the service announces none: items have no options there. */
  options: TakenOptions | null;
  prices: readonly ListedPrice[];
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
function readModel(value: unknown): ListedModel | null {
  const wire = fieldsOf(value);
  const id = textOf(wire?.id);
  if (wire === null || !id) return null;
  const pricing = fieldsOf(wire.pricing);
  const imageCostMicroUsd = microsOf(pricing?.batch_image, 0);
  // Prices without that of an image are not believed.
  const isPriced = imageCostMicroUsd !== null;
  return {
    id,
    provider: textOf(wire.provider),
    maxReferenceImages: Number.isSafeInteger(wire.max_reference_images)
      ? (wire.max_reference_images as number)
      : null,
    options: takenOptions(wire.options),
    prices: (Array.isArray(wire.prices) ? wire.prices : []).flatMap(priceOf),
    imageCostMicroUsd,
    imageHoldMicroUsd: isPriced ? microsOf(pricing?.batch_hold, 0) : null,
    isPaid: isPriced && pricing?.paid === true,
    isPlay: isPriced && pricing?.play_money === true,
    raw: wire,
  };
}

function takenOptions(value: unknown): TakenOptions | null {
  const options = fieldsOf(value);
  return (
    options && {
      aspectRatios: textsOf(options.aspect_ratio),
      sizes: textsOf(options.image_size).map((size) => size.toUpperCase()),
      pixels: readAnnouncedPixels(options.pixels),
      qualities: textsOf(options.quality),
      defaultQuality: textOf(options.default_quality),
      backgrounds: textsOf(options.background),
      seed: options.seed === true,
      maxSeed: Number.isSafeInteger(options.max_seed) ? (options.max_seed as number) : MOST_SEED,
      negativePrompt: options.negative_prompt === true,
    }
  );
}

function priceOf(value: unknown): ListedPrice[] {
  const price = fieldsOf(value);
  const [size, imageMicroUsd] = [textOf(price?.image_size), microsOf(price?.batch_image, 0)];
  if (size === null || imageMicroUsd === null) return [];
  const holdMicroUsd = microsOf(price?.batch_hold, 0) ?? imageMicroUsd;
  return [{ size: size.toUpperCase(), quality: textOf(price?.quality), imageMicroUsd, holdMicroUsd }];
}

/** A budget of the service that batches count in. */
export interface ListedBudget {
  /** Null: it counts the images of all providers. */
  upstream: string | null;
  per: string;
  limitMicroUsd: number;
  leftMicroUsd: number;
}

function budgetOf(value: unknown): ListedBudget[] {
  const wire = fieldsOf(value);
  const [limitMicroUsd, leftMicroUsd] = [microsOf(wire?.usd, 0), microsOf(wire?.left, 0)];
  const per = textOf(wire?.per);
  if (limitMicroUsd === null || leftMicroUsd === null || per === null) return [];
  return [{ upstream: textOf(wire?.upstream), per, limitMicroUsd, leftMicroUsd }];
}

/** Lists the models that this key can make batches with, or those that a provider serves. The first one is the default. */
export async function listModels(
  http: Http,
  signal?: AbortSignal,
  provider: string | null = null,
): Promise<ListedModel[]> {
  return (await listModelsAndLimits(http, signal, provider)).models;
}

/** The same, with the limits of a batch and the budgets that the service announces: none for most services. */
export async function listModelsAndLimits(
  http: Http,
  signal?: AbortSignal,
  provider: string | null = null,
): Promise<{ models: ListedModel[]; limits: Partial<Limits>; budgets: ListedBudget[] }> {
  const query = provider === null ? "" : `?${new URLSearchParams({ provider })}`;
  const answer = await http.json({ method: "GET", path: `${routes.batchModels}${query}`, signal });
  const page = readPage(answer.json);
  const models = page?.data.map(readModel).filter((model) => model !== null) ?? [];
  // An empty list is valid. A list without a single model is not.
  if (page === null || (models.length === 0 && page.data.length > 0))
    throw unexpectedAnswer("a list of models", answer.requestId);
  const announced = fieldsOf(fieldsOf(answer.json)?.limits) ?? {};
  const limits = Object.entries(ANNOUNCED_LIMITS).flatMap(([field, name]) => {
    const value = announced[field];
    return typeof value === "number" && Number.isSafeInteger(value) && value > 0 ? [[name, value]] : [];
  });
  const budgets = fieldsOf(answer.json)?.budgets;
  return {
    models,
    limits: Object.fromEntries(limits),
    budgets: (Array.isArray(budgets) ? budgets : []).flatMap(budgetOf),
  };
}
