import type { z } from "zod";
import type { ImgbatchError } from "../../contract/errors.ts";
import {
  type AspectRatio,
  DEFAULT_RATIO,
  type ImageMimeType,
  isImageMimeType,
  SIZE_TIERS,
  type SizeTier,
} from "../../contract/image-formats.ts";
import { FIXED_LIMITS, inWords, type Limits } from "../../contract/limits.ts";
import { type GenerateContentRequest, generateContentSchema } from "../../contract/native-api.ts";
import type { FindFileImage } from "../../domain/files/files.ts";
import { NO_SENT_TEXTS, type SentTexts } from "../../domain/images/sent-image.ts";
import { type ModelEntry, nearestRatio, pricedSizes, ratiosOf } from "../../domain/models.ts";
import type { ImageInspector } from "../../domain/ports/image-inspector.ts";
import type { CheckedContent } from "../../domain/realtime/checked-content.ts";
import { hasUnstorableText } from "../../kernel/text.ts";
import { fieldError, schemaProblem } from "../http/errors.ts";
import { isFromUser, readImages, readTurns } from "./read-contents.ts";

/** The fields that have a spelling with underscores, too. */
const CAMEL = Object.fromEntries(
  [
    "inlineData",
    "mimeType",
    "displayName",
    "sizeBytes",
    "fileData",
    "fileUri",
    "generationConfig",
    "responseModalities",
    "responseMimeType",
    "imageConfig",
    "aspectRatio",
    "imageSize",
    "outputMimeType",
    "imageOutputOptions",
    "displayName",
    "inputConfig",
    "fileName",
  ].map((name) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), name]),
);

/**
 * The value with its snake_case fields in lowerCamelCase, in objects up to `levels` deep: by default all of them. Where a
 * field has both spellings, the one in lowerCamelCase counts.
 */
export function camelKeys(value: unknown, levels = Number.POSITIVE_INFINITY): unknown {
  if (levels === 0) return value;
  if (Array.isArray(value)) return value.map((inner) => camelKeys(inner, levels));
  if (value === null || typeof value !== "object") return value;
  const entries = Object.entries(value);
  return Object.fromEntries(
    entries
      .filter(([key]) => !(Object.hasOwn(CAMEL, key) && Object.hasOwn(value, CAMEL[key] ?? "")))
      .map(([key, inner]) => [Object.hasOwn(CAMEL, key) ? CAMEL[key] : key, camelKeys(inner, levels - 1)]),
  );
}

interface ContentRules {
  limits: Limits;
  inspector: ImageInspector;
  /**
   * Whether a request must say all that the description demands. Else `generationConfig`, `responseModalities` and
   * `imageConfig` can be left out, which means an image with the defaults, and the declared types of images are ignored.
   */
  strictImageConfig: boolean;
  /** Images of a large body, which were taken out of it: see `SentTexts`. Default: none. */
  sent?: SentTexts;
  /** Finds the files of the caller. Default: there are none. */
  findFileImage?: FindFileImage;
}

type ImageConfig = NonNullable<GenerateContentRequest["generationConfig"]["imageConfig"]>;

const CONFIG = "generationConfig";
const IMAGE_CONFIG = `${CONFIG}.imageConfig`;

/**
 * Checks and normalises the body of a real-time request for this model. The order is fixed, and the first failure is
 * thrown: number of entries, types, options (modalities, ratio, size, format), text, images.
 */
export async function checkContent(
  body: unknown,
  model: ModelEntry,
  rules: ContentRules,
): Promise<CheckedContent> {
  const given = rules.strictImageConfig ? camelKeys(body) : withModalities(camelKeys(body));
  refuseTooMany(given);
  const parsed = generateContentSchema.safeParse(given, { error: inWords });
  if (!parsed.success) throw schemaProblem(parsed.error as z.ZodError, "REALTIME_INVALID_ARGUMENT");
  const { contents, generationConfig } = parsed.data;
  checkModalities(generationConfig.responseModalities);
  if (generationConfig.imageConfig == null && rules.strictImageConfig) {
    throw invalid(IMAGE_CONFIG, "is required: the parameters of the image, or {}");
  }
  const imageConfig = generationConfig.imageConfig ?? {};
  const ratio = checkRatio(imageConfig, model);
  const size = checkSize(imageConfig, model);
  const mimeType = checkFormat(imageConfig, generationConfig.responseMimeType);
  checkRoles(contents);
  refuseUnstorable(contents);
  const { prompt, earlier } = readTurns(contents, rules.limits);
  const { images, first } = await readImages(contents, {
    sent: NO_SENT_TEXTS,
    findFileImage: async () => null,
    ...rules,
  });
  const shape = ratio ?? (first === null ? DEFAULT_RATIO : nearestRatio(first, model.ratios));
  const keepsRatio = ratio === null && first !== null;
  return { model, prompt, earlier, images, ratio: shape, keepsRatio, size, mimeType };
}

/** A client for images alone may leave out that it wants an image. */
function withModalities(body: unknown): unknown {
  const config = fieldOf(body, CONFIG) ?? {};
  if (!isObject(body) || !isObject(config)) return body;
  const { responseModalities } = config;
  return { ...body, [CONFIG]: { ...config, responseModalities: responseModalities ?? ["IMAGE"] } };
}

/** Comes first: the schema needs a second for 200,000 elements, and memory for as many problems. */
function refuseTooMany(body: unknown): void {
  const max = FIXED_LIMITS.realtimeEntries;
  const contents = listOf(body, "contents");
  if (contents.length > max) {
    throw invalid("contents", `has ${contents.length} messages; at most ${max} are allowed`);
  }
  let parts = 0;
  for (const [i, message] of contents.entries()) {
    parts += listOf(message, "parts").length;
    if (parts > max)
      throw invalid(`contents[${i}].parts`, `all contents have more than ${max} parts together`);
  }
  if (listOf(fieldOf(body, CONFIG), "responseModalities").length > max) {
    throw invalid(`${CONFIG}.responseModalities`, `has more than ${max} entries`);
  }
}

function listOf(holder: unknown, name: string): readonly unknown[] {
  const list = fieldOf(holder, name);
  return Array.isArray(list) ? list : [];
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const fieldOf = (holder: unknown, name: string) =>
  (holder as Record<string, unknown> | null | undefined)?.[name];

function checkModalities(modalities: readonly string[]): void {
  const at = `${CONFIG}.responseModalities`;
  const given = modalities.map((modality) => modality.toUpperCase());
  if (!given.includes("IMAGE")) throw invalid(at, "must contain IMAGE");
  const other = given.find((modality) => modality !== "IMAGE" && modality !== "TEXT");
  if (other !== undefined) throw invalid(at, "takes only TEXT and IMAGE");
}

function checkRatio({ aspectRatio }: ImageConfig, model: ModelEntry): AspectRatio | null {
  if (aspectRatio == null || aspectRatio === "") return null;
  const ratios = ratiosOf(model);
  if (ratios.includes(aspectRatio)) return aspectRatio as AspectRatio;
  const problem = `the aspect ratio has an unsupported value; this model takes ${ratios.join(", ")}`;
  throw invalid(`${IMAGE_CONFIG}.aspectRatio`, problem);
}

function checkSize({ imageSize }: ImageConfig, model: ModelEntry): SizeTier {
  const asked = imageSize || "1K";
  const sizes = pricedSizes(model);
  const size = sizes.find((known) => known === asked);
  if (size !== undefined) return size;
  const at = `${IMAGE_CONFIG}.imageSize`;
  const upper = SIZE_TIERS.find((tier) => tier === asked.toUpperCase());
  if (upper !== undefined && upper !== asked) throw invalid(at, `must be written with a capital K: ${upper}`);
  throw invalid(at, `the image size has an unsupported value; this model makes ${sizes.join(", ")}`);
}

function checkFormat(config: ImageConfig, responseMimeType: string | null | undefined): ImageMimeType {
  const nested = config.imageOutputOptions?.mimeType;
  const [field, asked] = nested
    ? ["imageOutputOptions.mimeType", nested]
    : ["outputMimeType", config.outputMimeType];
  if (asked) {
    if (isImageMimeType(asked)) return asked;
    throw invalid(`${IMAGE_CONFIG}.${field}`, "must be image/png, image/jpeg or image/webp");
  }
  // This field also holds formats of text. Only an image type concerns the image.
  return responseMimeType && isImageMimeType(responseMimeType) ? responseMimeType : "image/png";
}

type Contents = GenerateContentRequest["contents"];

function checkRoles(contents: Contents): void {
  contents.forEach(({ role }, i) => {
    if (!role || role === "user" || role === "model") return;
    throw invalid(`contents[${i}].role`, "must be user or model");
  });
  if (!contents.some(isFromUser)) throw invalid("contents", "needs at least one user message");
}

/** Texts of the model too: a text that cannot be passed on unchanged is refused. */
function refuseUnstorable(contents: Contents): void {
  for (const [i, { parts }] of contents.entries()) {
    const j = (parts ?? []).findIndex(({ text }) => text != null && hasUnstorableText(text));
    if (j < 0) continue;
    throw invalid(`contents[${i}].parts[${j}].text`, "must not hold NUL or half of a surrogate pair");
  }
}

function invalid(param: string, problem: string): ImgbatchError {
  return fieldError("REALTIME_INVALID_ARGUMENT", param, problem);
}
