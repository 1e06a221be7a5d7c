import { createHash } from "node:crypto";
import type { Request, Response } from "express";
import type { z } from "zod";
import type { ImgbatchError } from "../../contract/errors.ts";
import {
  type AspectRatio,
  DEFAULT_RATIO,
  type ImageMimeType,
  type ImageSize,
  MOST_SEED,
  makesPixels,
  nearestRatio,
  pixelAdvice,
  pixelSize,
  type SizePx,
  type SizeTier,
  sizeOfPixels,
} from "../../contract/image-formats.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { type OpenaiBody, openaiSchemas } from "../../contract/openai-api.ts";
import { PATHS } from "../../contract/routes.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import type { CheckedContent, CheckedImage } from "../../domain/checked-content.ts";
import type { FindFileImage } from "../../domain/files/uploads.ts";
import {
  imageInDraft,
  NO_SENT_TEXTS,
  receiveImage,
  type SentImage,
  type SentTexts,
} from "../../domain/images/sent-image.ts";
import { imagePriceUsd, inputImageLimit, type ModelEntry, type OptionFacts } from "../../domain/models.ts";
import type { BlobDraft } from "../../domain/ports/blob-store.ts";
import type { ImageOptions, VerbatimRequest } from "../../domain/ports/image-provider.ts";
import { dataUrlHead } from "../../kernel/base64.ts";
import { isObject } from "../../kernel/json.ts";
import { formatBytes, isLongerThan } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { invalidArgument, parseArgument, requireStorable } from "../http/errors.ts";
import { ImageChecker, type ReceivedImage } from "../native-api/check-content.ts";
import { modelNamed } from "../native-api/models.ts";
import { BodyReservation } from "../request-body/body-budgets.ts";
import { BODY_RATE, streamBody, withRealtimeBody } from "../request-body/json-body.ts";
import { type BodyFormat, type Shape, shapeOf } from "../request-body/json-reader.ts";
import { boundaryOf, type Part, readParts, textOf } from "../request-body/multipart.ts";

/** The names of qualities in all versions of OpenAI's API, the lowest first. Names in one group are synonyms. */
const SCALE = [["low"], ["medium", "standard"], ["high", "hd"], ["xhigh"], ["max"]] as const;

const placeOf = (word: string) => SCALE.findIndex((words) => words.some((each) => each === word));

interface Wanted {
  model: ModelEntry;
  facts: OptionFacts;
  size: ImageSize;
  mimeType: ImageMimeType;
}

/**
 * Returns what a request asks of its model: what the model lacks becomes its nearest. Throws
 * `REALTIME_INVALID_ARGUMENT` for an unknown quality, for a transparent JPEG, and for a seed that the model does not take.
 */
function readOptions(
  { quality: word, background: behind, seed, n }: OpenaiBody<"GenerateImages">,
  { model, facts, size, mimeType }: Wanted,
): Pick<ImageOptions, "quality" | "background" | "seed"> {
  if (seed != null && !facts.seed) throw invalidArgument("seed", "the model takes none");
  // Behind the largest seed of all, the next one is 0. A model with a bound of its own would refuse the last image.
  const mostSeed = facts.maxSeed === MOST_SEED ? MOST_SEED : facts.maxSeed - ((n ?? 1) - 1);
  if (seed != null && seed > mostSeed)
    throw invalidArgument("seed", `must be a whole number from 0 to ${mostSeed}`);
  const priced = facts.qualities.filter((each) => imagePriceUsd(model, size, each) !== undefined);
  const quality = word == null || word.toLowerCase() === "auto" ? null : nearestQuality(word, priced);
  if (behind === "transparent" && mimeType === "image/jpeg")
    throw invalidArgument("background", "a JPEG has no transparency: ask for png or webp");
  // A model that makes no transparent picture makes an opaque one.
  const wanted = behind ?? "auto";
  const possible = [wanted, "opaque" as const].find((each) => facts.backgrounds.includes(each)) ?? null;
  const background = wanted === "auto" ? null : possible;
  return { quality, background, seed: seed ?? null };
}

/** Of two that are equally near, the lower one. Null for a model without qualities, or with words of its own alone. */
function nearestQuality(word: string, known: readonly string[]): string | null {
  const asked = word.toLowerCase();
  const own = known.find((each) => each.toLowerCase() === asked);
  if (own !== undefined) return own;
  const wanted = placeOf(asked);
  if (wanted < 0) {
    const words = new Set(["auto", ...SCALE.flat(), ...known]);
    throw invalidArgument("quality", `must be one of ${[...words].join(", ")}`);
  }
  const near = known
    .map((each) => ({ each, place: placeOf(each) }))
    .filter(({ place }) => place >= 0)
    .sort((a, b) => Math.abs(a.place - wanted) - Math.abs(b.place - wanted) || a.place - b.place);
  return near[0]?.each ?? null;
}

const { editImages, editImageBytes } = FIXED_LIMITS;
const TOO_LARGE = `is larger than ${formatBytes(editImageBytes)}`;
const NO_DATA_URL =
  "must be a data URL such as data:image/png;base64,…: nothing is fetched from other addresses";

/** An image of an edit that came as JSON. Throws `REALTIME_INVALID_ARGUMENT`. */
export async function imageOfJson(
  { image_url: url, file_id: id }: OpenaiBody<"EditImages">["images"][number],
  at: string,
  sent: SentTexts,
  findFile: FindFileImage,
): Promise<ReceivedImage> {
  if ((url == null) === (id == null)) throw invalidArgument(at, "must have one of image_url and file_id");
  if (url != null) return receivedImage(imageOfUrl(url, `${at}.image_url`, sent), at);
  return receivedImage(await imageOfFile(id ?? "", `${at}.file_id`, findFile), at);
}

function imageOfUrl(url: string, at: string, sent: SentTexts): SentImage {
  const long = sent.get(url)?.content;
  if (long === "too large") throw invalidArgument(at, TOO_LARGE);
  const head = dataUrlHead(url);
  const isOther = sent.get(url)?.isDataUrl === false || (long === undefined && head === null);
  if (long === "no Base64" || isOther) throw invalidArgument(at, NO_DATA_URL);
  if (long !== undefined) return long;
  const rules = { maxBytes: editImageBytes, base64: "lenient", sent: NO_SENT_TEXTS } as const;
  const image = receiveImage(url.slice(head ?? 0), rules);
  if (typeof image === "string") throw invalidArgument(at, image);
  return image;
}

async function imageOfFile(id: string, at: string, findFile: FindFileImage): Promise<SentImage> {
  const image = await findFile(id);
  if (image === null) throw invalidArgument(at, "must be the id of a file that was uploaded with this key");
  if (image.sizeBytes > editImageBytes) throw invalidArgument(at, TOO_LARGE);
  return image;
}

/** An image whose type its bytes decide. `at` is the field that it came in. */
export function receivedImage(image: SentImage, at: string): ReceivedImage {
  return { image, declared: null, fields: { type: at, bytes: at, amount: at } };
}

function tooManyImages(count: number, limit: number): ImgbatchError {
  return invalidArgument("image", `${count} images were sent; at most ${limit} are allowed`);
}

const KIB = 1024;
const MOST_PARTS = 100;
const FIELD_BYTES = 64 * KIB;
/** `image`, `image[]` and `image[0]`. */
const IMAGE_NAME = /^image(?:\[\d*\])?$/;
const TEXT_NAMES = Object.keys(openaiSchemas.GenerateImages.shape);

/** A form whose images are on the disk. */
interface ImagesForm {
  fields: Record<string, string>;
  images: ReceivedImage[];
  mask: ReceivedImage | null;
}

/**
 * Reads a form (RFC 7578) and passes it to `work`. The images go to the disk while they arrive, and are removed when the
 * work has ended, however it ends. Throws `REALTIME_INVALID_ARGUMENT`, `UNSUPPORTED_MEDIA_TYPE`, `REQUEST_TOO_LARGE`,
 * `REQUEST_TIMEOUT`, `RATE_LIMITED`, and the error of a disk that cannot be written.
 */
async function withForm<T>(
  deps: ApiDeps,
  request: Request,
  response: Response,
  work: (form: ImagesForm) => Promise<T>,
): Promise<T> {
  const boundary = boundaryOf(request.get("content-type"));
  const form: ImagesForm = { fields: {}, images: [], mask: null };
  const drafts: BlobDraft[] = [];
  const reservation = new BodyReservation(deps.bodyBudgets, 0, BODY_RATE.waitMs);
  const ended = new AbortController();
  const store = (part: Part, at: string) => {
    const draft = deps.blobs.draft();
    drafts.push(draft);
    return storeImage(part, at, draft, reservation, ended.signal);
  };
  // A character of a prompt takes up to four bytes.
  const fieldBytes = Math.max(FIELD_BYTES, 4 * deps.limits.promptChars + KIB);
  const readPart = async (part: Part) => {
    const { name = "" } = part;
    if (name === "mask") {
      if (form.mask !== null) throw invalidArgument("mask", "must be one file");
      form.mask = await store(part, "mask");
    } else if (IMAGE_NAME.test(name)) {
      if (form.images.length === editImages) throw tooManyImages(editImages + 1, editImages);
      form.images.push(await store(part, `image[${form.images.length}]`));
    } else if (part.fileName === undefined) form.fields[name] = await textOf(part, fieldBytes);
    else if (TEXT_NAMES.includes(name)) throw invalidArgument(name, "must be a text, not a file");
  };
  try {
    const parts = readParts(boundary, MOST_PARTS, readPart);
    await streamBody(request, response, { maxBytes: deps.limits.realtimeBodyBytes, add: parts.add });
    await parts.end();
    reservation.finish();
    return await work(form);
  } finally {
    ended.abort(new Error("the request ended early"));
    reservation.leave();
    // The next start of the service removes drafts that cannot be removed now.
    await Promise.allSettled(drafts.map((draft) => draft.discard()));
  }
}

async function storeImage(
  part: Part,
  at: string,
  draft: BlobDraft,
  reservation: BodyReservation,
  ended: AbortSignal,
): Promise<ReceivedImage> {
  const hash = createHash("sha256");
  let sizeBytes = 0;
  for await (const bytes of part.bytes()) {
    sizeBytes += bytes.length;
    if (sizeBytes > editImageBytes) {
      throw invalidArgument(at, `is larger than ${formatBytes(editImageBytes)}`);
    }
    await reservation.diskFor(bytes.length);
    // A draft that was discarded would begin again.
    ended.throwIfAborted();
    await draft.write(bytes);
    hash.update(bytes);
  }
  if (sizeBytes === 0) throw invalidArgument(at, "is empty: send the bytes of an image");
  await draft.finish();
  return receivedImage(imageInDraft(draft, { sizeBytes, sha256: hash.digest("hex") }), at);
}

/** Fields whose values come as texts in a form, and from some clients in JSON, too. */
const NUMBERS: readonly string[] = ["n", "output_compression", "seed", "partial_images"];
const TRUTHS: readonly string[] = ["stream"];

/** The shape of a request as JSON. */
export const IMAGES_SHAPE = shapeOf(openaiSchemas.EditImages, {
  prompt: "prompt",
  "images[].image_url": "image",
  "mask.image_url": "image",
});
/** How its images are written. */
export const EDIT_IMAGES = {
  base64: "lenient",
  areDataUrls: true,
  maxBytes: FIXED_LIMITS.editImageBytes,
} as const;

/** The format of a body with one request. */
export function imagesFormat(
  { promptChars }: Pick<Limits, "promptChars">,
  shape: Shape = IMAGES_SHAPE,
): BodyFormat {
  const code = () => "REALTIME_INVALID_ARGUMENT" as const;
  // A mask is an image more.
  return { shape, prompts: 1, images: FIXED_LIMITS.editImages + 1, promptChars, code };
}

/** Names by which clients send images, besides those of an edit. They would have no effect. */
const IMAGE_FIELDS = ["image", "images", "image_url", "input_image", "init_image", "reference_images"];

/**
 * Throws for an image in a field that is not read: the answer would be another picture. `read`: the fields of images that the
 * operation reads.
 */
function refuseUnreadImages(value: object, read: readonly string[]): void {
  const names = Object.entries(value).flatMap(([name, given]) =>
    given == null || given === "" ? [] : [name],
  );
  const unread = names.find((name) => IMAGE_FIELDS.includes(name) && !read.includes(name));
  if (unread === undefined) return;
  const images = read.length === 0 ? `needs ${PATHS.imageEdits}, which makes images from others` : "";
  throw invalidArgument(unread, images || `is not read: send the images in \`${read[0]}\``);
}

/** Returns the names of fields without an effect. */
function unknownFields(value: object, known: object): string[] {
  const names = Object.entries(value).filter(([, given]) => given != null && given !== "");
  return names.map(([name]) => name).filter((name) => !Object.hasOwn(known, name) && !IMAGE_NAME.test(name));
}

/** A request whose fields have their types. The images were not looked into yet. */
interface SentRequest {
  /** The names of the fields that have no effect. */
  ignored: readonly string[];
  fields: OpenaiBody<"GenerateImages">;
  images: readonly ReceivedImage[];
  mask: ReceivedImage | null;
}

/**
 * Reads a request and passes it to `work`: an edit as a form or as JSON, anything else as JSON. Its files on the disk
 * are removed when the work has ended. Throws the errors of `withForm` and `withJsonBody`.
 */
export async function withRequest(
  deps: ApiDeps,
  request: Request,
  response: Response,
  isEdit: boolean,
  work: (sent: SentRequest) => Promise<void>,
): Promise<void> {
  if (isEdit && request.is("multipart/form-data")) {
    return withForm(deps, request, response, async ({ fields, images, mask }) => {
      refuseUnreadImages(fields, ["image"]);
      const parsed = parse(openaiSchemas.GenerateImages, fields);
      if (images.length === 0) throw invalidArgument("image", "is required: a file");
      const ignored = unknownFields(fields, openaiSchemas.GenerateImages.shape);
      await work({ fields: parsed, ignored, images, mask });
    });
  }
  const format = imagesFormat(deps.limits);
  const options = { format, images: EDIT_IMAGES };
  await withRealtimeBody(deps, request, response, options, async ({ value, sent, findFile }) =>
    work(await readJson(value, isEdit, sent, findFile)),
  );
}

/** Reads a request that came as JSON. Throws `REALTIME_INVALID_ARGUMENT`. */
export async function readJson(
  value: unknown,
  isEdit: boolean,
  sent: SentTexts,
  findFile: FindFileImage,
): Promise<SentRequest> {
  if (isObject(value)) refuseUnreadImages(value, isEdit ? ["images"] : []);
  if (!isEdit) {
    const fields = parse(openaiSchemas.GenerateImages, value);
    if ((value as { mask?: unknown }).mask != null) throw invalidArgument("mask", "needs an image to edit");
    const ignored = unknownFields(value as object, openaiSchemas.GenerateImages.shape);
    return { fields, ignored, images: [], mask: null };
  }
  const fields = parse(openaiSchemas.EditImages, value);
  const ignored = unknownFields(value as object, openaiSchemas.EditImages.shape);
  const { length } = fields.images;
  if (length > editImages) throw tooManyImages(length, editImages);
  if (length === 0) throw invalidArgument("images", "must not be empty");
  const images: ReceivedImage[] = [];
  for (const [i, image] of fields.images.entries())
    images.push(await imageOfJson(image, `images[${i}]`, sent, findFile));
  const mask = fields.mask == null ? null : await imageOfJson(fields.mask, "mask", sent, findFile);
  return { fields, ignored, images, mask };
}

/** Throws `REALTIME_INVALID_ARGUMENT`. */
function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  return parseArgument(schema, isObject(value) ? withValues(value) : value);
}

/** Leaves out fields that are null or empty, and reads a number or a truth value that came as text. */
function withValues(fields: object): Record<string, unknown> {
  const entries = Object.entries(fields).filter(([, value]) => value !== null && value !== "");
  return Object.fromEntries(entries.map(([name, value]) => [name, typedValue(name, value)]));
}

function typedValue(name: string, value: unknown): unknown {
  if (typeof value !== "string") return value;
  if (NUMBERS.includes(name) && /^\d{1,10}$/.test(value)) return Number(value);
  if (TRUTHS.includes(name) && /^(true|false)$/i.test(value)) return value.toLowerCase() === "true";
  return value;
}

const DEFAULT_TIER: SizeTier = "1K";
const FORMATS: Readonly<Record<string, ImageMimeType>> = {
  png: "image/png",
  jpeg: "image/jpeg",
  jpg: "image/jpeg",
  webp: "image/webp",
};

/** A request that has passed every check that needs no database. */
export interface AskedImages {
  model: ModelEntry;
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
  group: Caller["group"],
  sent: SentRequest,
): Promise<AskedImages> {
  const model = modelNamed(deps, group, sent.fields.model ?? null, "realtime");
  const imageLimit = inputImageLimit(deps.realtimeOffers.serving(model.id));
  const facts = deps.realtimeOffers.options(model);
  const named = facts.areDrawings ? deps.pixelsNamed(sent.fields.model ?? "") : null;
  const size = readSize("size", sent.fields.size ?? "auto");
  const isOther = named?.hasEnded === true && (size === null || !makesPixels(named.pixels, size));
  const pixels = named === null || isOther ? facts.pixels : named.pixels;
  return checkFields(deps, { model, imageLimit, facts: { ...facts, pixels } }, sent);
}

/** The same for a model that takes this many images and these options. */
export async function checkFields(
  { limits, inspector }: Pick<ApiDeps, "limits" | "inspector">,
  { model, imageLimit, facts }: { model: ModelEntry; imageLimit: number; facts: OptionFacts },
  { fields, ignored, images, mask: sentMask }: SentRequest,
): Promise<AskedImages> {
  const named = namedShape(fields, facts);
  const size = named.size ?? readSize("size", fields.size ?? "auto");
  const mimeType = FORMATS[(fields.output_format ?? "png").toLowerCase()];
  if (mimeType === undefined) throw invalidArgument("output_format", "must be png, jpeg or webp");
  const responseFormat = fields.response_format ?? "b64_json";
  if (!["b64_json", "url"].includes(responseFormat)) {
    throw invalidArgument("response_format", "must be b64_json or url");
  }
  const prompt = readPrompt(fields, limits.promptChars);
  if (images.length > imageLimit) throw tooManyImages(images.length, imageLimit);
  const checker = new ImageChecker(inspector);
  for (const image of images) await checker.add(image);
  const mask = sentMask && (await checkMask(sentMask, checker.first, facts, inspector));
  const exact = size && exactSize(size, facts, fields.model ?? model.id);
  if (exact !== null && named.ratio !== null && named.ratio !== exact.ratio)
    throw invalidArgument("aspect_ratio", `does not fit the size ${exact.size}`);
  const { first } = checker;
  const nearest = first === null ? DEFAULT_RATIO : nearestRatio(first, facts);
  const made = exact?.size ?? named.tier ?? defaultTier(facts.tiers);
  const options = {
    size: made,
    ratio: exact?.ratio ?? named.ratio ?? nearest,
    keepsRatio: exact === null && named.ratio === null,
    mimeType,
    ...readOptions(fields, { model, facts, size: made, mimeType }),
    negativePrompt: null,
  };
  const verbatim = verbatimOf(fields);
  const isStream = fields.stream ?? false;
  const partialImages = fields.partial_images ?? 0;
  const unread = isStream || partialImages === 0 ? ignored : [...ignored, "partial_images"];
  const more = {
    ...(mask && { mask }),
    ...(verbatim && { verbatim }),
    ...(isStream && partialImages > 0 && { partialImages }),
    ...(unread.length > 0 && { ignored: unread }),
  };
  return {
    model,
    content: { prompt, earlier: "", images: checker.images, options, ...more },
    count: fields.n ?? 1,
    quality: mimeType === "image/png" ? null : (fields.output_compression ?? null),
    isByUrl: responseFormat === "url",
    isStream,
  };
}

/** Throws `REALTIME_INVALID_ARGUMENT`. `first` is the size of the image that is to change. */
async function checkMask(
  mask: ReceivedImage,
  first: SizePx | null,
  { mask: takesMask }: OptionFacts,
  inspector: ApiDeps["inspector"],
): Promise<CheckedImage> {
  const refused = (problem: string) => invalidArgument("mask", problem);
  if (!takesMask)
    throw refused("is not supported by this model: say in the prompt what is to change, and where");
  const checker = new ImageChecker(inspector);
  await checker.add(mask);
  const [image] = checker.images;
  if (image?.mimeType !== "image/png") throw refused("must be a PNG");
  if (checker.first?.widthPx !== first?.widthPx || checker.first?.heightPx !== first?.heightPx)
    throw refused(`must have the size of the first image, ${first?.widthPx}x${first?.heightPx}`);
  return image;
}

/** Returns the size that makes exactly these pixels. Throws `REALTIME_INVALID_ARGUMENT` naming what the model takes. */
function exactSize(
  wanted: SizePx,
  facts: OptionFacts,
  name: string,
): { size: ImageSize; ratio: AspectRatio } {
  const { pixels, areDrawings } = facts;
  const isRefused = areDrawings && pixels !== null && pixels !== "any" && !makesPixels(pixels, wanted);
  const found = isRefused ? null : sizeOfPixels(facts, wanted);
  if (found !== null) return found;
  const takes = pixelAdvice(facts, wanted);
  throw invalidArgument("size", `${pixelSize(wanted)} is not possible: ${name} takes ${takes}`);
}

/** Null stands for the default. `field`: where it stands. */
function readSize(field: string, text: string): SizePx | null {
  if (text.toLowerCase() === "auto") return null;
  const [, width, height] = /^([1-9]\d{0,5})x([1-9]\d{0,5})$/i.exec(text) ?? [];
  if (width === undefined || height === undefined)
    throw invalidArgument(field, "must be auto or like 1536x1024");
  return { widthPx: Number(width), heightPx: Number(height) };
}

/** What a request says of the picture's shape in the words of other vendors; null where it says nothing. */
function namedShape(
  { aspect_ratio: ratio, size: _, ...fields }: OpenaiBody<"GenerateImages">,
  { ratios, tiers: sizes }: OptionFacts,
): { ratio: AspectRatio | null; tier: SizeTier | null; size: SizePx | null } {
  const known = ratios.find((each) => each === ratio) ?? null;
  const isAsked = ratio != null && ratio.toLowerCase() !== "auto";
  if (isAsked && known === null)
    throw invalidArgument("aspect_ratio", `must be one that the model makes: ${ratios.join(", ")}`);
  let [tier, size]: [SizeTier | null, SizePx | null] = [null, null];
  for (const name of ["image_size", "resolution"] as const) {
    const text = fields[name] ?? "auto";
    const found = sizes.find((each) => each === text.toUpperCase()) ?? null;
    if (found === null && !/^(?:auto|\d+x\d+)$/i.test(text))
      throw invalidArgument(name, `must be one that the model makes: ${sizes.join(", ")}`);
    if (found === null) size ??= readSize(name, text);
    else if (tier !== null && found !== tier) throw invalidArgument(name, `is not the image_size ${tier}`);
    else tier = found;
  }
  return { ratio: known, tier, size };
}

/** Fields that reach an upstream of this API unchanged. */
const PASSED = ["moderation", "input_fidelity", "user", "safety_identifier"] as const;

function verbatimOf(request: OpenaiBody<"GenerateImages">): VerbatimRequest | undefined {
  const passed = PASSED.map((name) => [name, request[name]]).filter(([, value]) => value != null);
  return passed.length === 0 ? undefined : { api: "openai", fields: Object.fromEntries(passed) };
}

/** A model may lack the usual size. */
function defaultTier(tiers: readonly SizeTier[]): SizeTier {
  return tiers.includes(DEFAULT_TIER) ? DEFAULT_TIER : (tiers[0] ?? DEFAULT_TIER);
}

function readPrompt({ prompt }: OpenaiBody<"GenerateImages">, maxChars: number): string {
  const text = prompt.trim();
  if (text === "") throw invalidArgument("prompt", "is required: a text");
  if (isLongerThan(text, maxChars)) {
    throw invalidArgument("prompt", `has more than the ${maxChars} characters that are allowed`);
  }
  requireStorable("prompt", text);
  return text;
}
