import {
  DEFAULT_RATIO,
  type ImageMimeType,
  type SizePx,
  type SizeTier,
} from "../../contract/image-formats.ts";
import type { ImagesFields } from "../../contract/openai-api.ts";
import {
  inputImageLimit,
  type ModelEntry,
  nearestRatio,
  nearestTier,
  pricedSizes,
  realtimeModelsOf,
} from "../../domain/models.ts";
import type { CheckedContent } from "../../domain/realtime/checked-content.ts";
import { hasUnstorableText, isLongerThan } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { fieldError } from "../http/errors.ts";
import { modelNotFound } from "../native-api/models.ts";
import { ImageChecker } from "../native-api/read-contents.ts";
import { servedModelNamed } from "./model-names.ts";
import { type SentRequest, tooManyImages } from "./read-request.ts";

const DEFAULT_TIER: SizeTier = "1K";
const FORMATS: Readonly<Record<string, ImageMimeType>> = {
  png: "image/png",
  jpeg: "image/jpeg",
  jpg: "image/jpeg",
  webp: "image/webp",
};

/** A request that has passed every check that needs no database. */
export interface AskedImages {
  content: CheckedContent;
  count: number;
  /** The quality of a JPEG or WebP, in percent; null: as the model made it. */
  quality: number | null;
  isByUrl: boolean;
  isStream: boolean;
}

/**
 * Checks a request. The order is fixed, and the first failure is thrown: model, size, format, prompt, images. Throws
 * `REALTIME_MODEL_NOT_FOUND` and `REALTIME_INVALID_ARGUMENT`.
 */
export async function checkRequest(
  deps: ApiDeps,
  group: Parameters<typeof realtimeModelsOf>[0],
  sent: SentRequest,
): Promise<AskedImages> {
  const model = findModel(deps, group, sent.fields.model ?? null);
  return checkFields(deps, model, inputImageLimit(deps.realtimeOffers.serving(model.id)), sent);
}

/** The same for a model that takes this many images. */
export async function checkFields(
  { limits, inspector }: Pick<ApiDeps, "limits" | "inspector">,
  model: ModelEntry,
  imageLimit: number,
  { fields, images }: SentRequest,
): Promise<AskedImages> {
  const size = readSize(fields.size ?? "auto");
  const mimeType = FORMATS[(fields.output_format ?? "png").toLowerCase()];
  if (mimeType === undefined) throw invalid("output_format", "must be png, jpeg or webp");
  const responseFormat = fields.response_format ?? "b64_json";
  if (!["b64_json", "url"].includes(responseFormat)) {
    throw invalid("response_format", "must be b64_json or url");
  }
  const prompt = readPrompt(fields, limits.promptChars);
  if (images.length > imageLimit) throw tooManyImages(images.length, imageLimit);
  const checker = new ImageChecker(inspector);
  for (const image of images) await checker.add(image);
  const shape = size ?? checker.first;
  const ratio = shape === null ? DEFAULT_RATIO : nearestRatio(shape, model.ratios);
  const tiers = pricedSizes(model);
  const tier = size === null ? defaultTier(tiers) : nearestTier(size, ratio, tiers);
  const keepsRatio = size === null && shape !== null;
  return {
    content: { model, prompt, earlier: "", images: checker.images, ratio, keepsRatio, size: tier, mimeType },
    count: fields.n ?? 1,
    quality: mimeType === "image/png" ? null : (fields.output_compression ?? null),
    isByUrl: responseFormat === "url",
    isStream: fields.stream ?? false,
  };
}

/** Without a name, and for names that have none, it is the first model that a provider serves now. */
function findModel(
  deps: ApiDeps,
  group: Parameters<typeof realtimeModelsOf>[0],
  name: string | null,
): ModelEntry {
  const models = realtimeModelsOf(group, deps.models);
  const model = servedModelNamed(name, models, deps.realtimeOffers, deps.modelNames);
  if (model === null) throw modelNotFound(name ?? "");
  return model;
}

/** Null stands for the default. */
function readSize(text: string): SizePx | null {
  if (text.toLowerCase() === "auto") return null;
  const [, width, height] = /^([1-9]\d{0,5})x([1-9]\d{0,5})$/i.exec(text) ?? [];
  if (width === undefined || height === undefined) throw invalid("size", "must be auto or like 1536x1024");
  return { widthPx: Number(width), heightPx: Number(height) };
}

/** A model may lack the usual size. */
function defaultTier(tiers: readonly SizeTier[]): SizeTier {
  return tiers.includes(DEFAULT_TIER) ? DEFAULT_TIER : (tiers[0] ?? DEFAULT_TIER);
}

function readPrompt({ prompt }: ImagesFields, maxChars: number): string {
  const text = prompt.trim();
  if (text === "") throw invalid("prompt", "is required: a text");
  if (isLongerThan(text, maxChars)) {
    throw invalid("prompt", `has more than the ${maxChars} characters that are allowed`);
  }
  if (hasUnstorableText(text)) throw invalid("prompt", "must not hold NUL or half of a surrogate pair");
  return text;
}

const invalid = (param: string, problem: string) => fieldError("REALTIME_INVALID_ARGUMENT", param, problem);
