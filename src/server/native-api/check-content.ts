import { isDeepStrictEqual } from "node:util";
import {
  type AspectRatio,
  DEFAULT_RATIO,
  type ImageMimeType,
  type ImageSize,
  isImageMimeType,
  nearestRatio,
  pixelAdvice,
  readPixels,
  SIZE_TIERS,
  type SizePx,
  type SizeTier,
  shownSize,
  sizeOfPixels,
} from "../../contract/image-formats.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { type NativeBody, nativeSchemas, SIGN_TEXT } from "../../contract/native-api.ts";
import type { CheckedContent, CheckedImage } from "../../domain/checked-content.ts";
import type { FindFileImage } from "../../domain/files/uploads.ts";
import {
  InputImages,
  NO_SENT_TEXTS,
  receiveImage,
  type SentImage,
  type SentTexts,
} from "../../domain/images/sent-image.ts";
import { MAX_INPUT_IMAGES, type OptionFacts } from "../../domain/models.ts";
import type { ImageInspector } from "../../domain/ports/image-inspector.ts";
import type { ImageOptions, PASSED_ON, VerbatimRequest } from "../../domain/ports/image-provider.ts";
import { isObject } from "../../kernel/json.ts";
import { formatBytes, hasUnstorableText, isLongerThan, truncateCodePoints } from "../../kernel/text.ts";
import { checkLook } from "../batch-api/check-options.ts";
import { invalidArgument, parseArgument } from "../http/errors.ts";

/** An image of a request before its bytes were looked into. `fields`: where each kind of problem belongs. */
export interface ReceivedImage {
  image: SentImage;
  /** The declared type; null when it does not matter. */
  declared: ImageMimeType | null;
  fields: Record<"type" | "bytes" | "amount", string>;
}

/** Looks into the input images of one real-time request, in their order. */
export class ImageChecker {
  readonly images: CheckedImage[] = [];
  /** The size of the first one, as it is shown; null before it. */
  first: SizePx | null = null;
  readonly #inputs: InputImages;

  constructor(inspector: ImageInspector) {
    this.#inputs = new InputImages(inspector);
  }

  /** Throws `REALTIME_INVALID_ARGUMENT`. */
  async add({ image, declared, fields }: ReceivedImage): Promise<void> {
    const facts = await this.#inputs.check(image, declared);
    if ("problem" in facts) {
      throw invalidArgument(fields[facts.about], facts.problem);
    }
    this.images.push({
      read: () => image.read(),
      lend: (work) => image.lend(work),
      keepAs: (blobs, key) => image.keepAs(blobs, key),
      sizeBytes: image.sizeBytes,
      sha256: image.sha256,
      mimeType: facts.mimeType,
      id: null,
      type: null,
    });
    this.first ??= shownSize(facts);
  }
}

/** Messages of the user without a message of the model between them. */
interface Turn {
  /** The index of its first message. */
  start: number;
  text: string;
}

/** An absent role is the user's. */
const isFromUser = ({ role }: Contents[number]): boolean => role !== "model";

/**
 * The texts of a conversation. `prompt` is the user's last turn with a text; the limit on prompts applies to it alone.
 * `earlier` has the turns before, cut to the same length: the oldest are dropped first.
 * Throws `REALTIME_INVALID_ARGUMENT` when there is no text, or too much of it.
 */
function readTurns(
  contents: Contents,
  { promptChars }: Pick<Limits, "promptChars">,
): { prompt: string; earlier: string } {
  const turns = turnsOf(contents);
  const spoken = turns.filter(({ text }) => text !== "");
  const last = spoken.pop();
  if (last === undefined) {
    const at = `contents[${turns[0]?.start ?? 0}].parts`;
    throw invalidArgument(at, "need a text: what to draw, or how to edit");
  }
  if (isLongerThan(last.text, promptChars)) {
    const problem = `the text has more than the ${promptChars} characters that are allowed`;
    throw invalidArgument(`contents[${last.start}].parts`, problem);
  }
  return { prompt: last.text, earlier: newest(spoken, promptChars) };
}

function turnsOf(contents: Contents): Turn[] {
  const turns: { start: number; texts: string[] }[] = [];
  contents.forEach((message, i) => {
    if (!isFromUser(message)) return;
    const previous = contents[i - 1];
    if (previous === undefined || !isFromUser(previous)) turns.push({ start: i, texts: [] });
    for (const { text } of message.parts ?? []) {
      if (text != null && text.trim() !== "") turns.at(-1)?.texts.push(text.trim());
    }
  });
  return turns.map(({ start, texts }) => ({ start, text: texts.join("\n") }));
}

/** Whole turns, as many of the newest as fit. */
export function newest(turns: readonly Pick<Turn, "text">[], maxChars: number): string {
  let earlier = "";
  for (const { text } of turns.toReversed()) {
    const longer = earlier === "" ? text : `${text}\n${earlier}`;
    if (isLongerThan(longer, maxChars)) return earlier || truncateCodePoints(text, maxChars);
    earlier = longer;
  }
  return earlier;
}

/**
 * The input images in their order, of all messages: an image that the model made earlier can be the one to edit.
 * Interim images of a model that thinks are left out, and the oldest of the model's where there are more than it takes: a
 * long chat goes on. `first` is the size of the first image, `places` where each of them was.
 */
async function readImages(
  contents: Contents,
  rules: Required<ContentRules>,
): Promise<{ images: CheckedImage[]; first: SizePx | null; places: string[]; leftOut: string[] }> {
  const found = contents.flatMap((message, i) =>
    (message.parts ?? []).flatMap((part, j) => {
      const at = `contents[${i}].parts[${j}]`;
      const { inlineData, fileData, text } = part;
      if (!hasImage(part) || part.thought === true) return [];
      const given = [text, inlineData, fileData].filter((field) => field != null);
      if (given.length > 1) throw invalidArgument(at, "must be one of text, inlineData and fileData");
      return [{ at, inlineData, fileData, isOfUser: isFromUser(message) }];
    }),
  );
  const count = found.filter(({ isOfUser }) => isOfUser).length;
  if (count > MAX_INPUT_IMAGES) {
    const problem = `have ${count} input images; at most ${MAX_INPUT_IMAGES} are allowed`;
    throw invalidArgument("contents", problem);
  }
  const excess = Math.max(0, found.length - rules.imageLimit);
  const leftOut = found.flatMap(({ at, isOfUser }) => (isOfUser ? [] : [at])).slice(0, excess);
  const kept = found.filter(({ at }) => !leftOut.includes(at));
  const checker = new ImageChecker(rules.inspector);
  for (const part of kept) await checker.add(await receive(part, rules));
  const { images, first } = checker;
  return { images, first, places: kept.map(({ at }) => at), leftOut };
}

const hasImage = ({ inlineData, fileData }: Part): boolean => inlineData != null || fileData != null;

/** The part that a stream sends as a sign of life, see `SIGN_OF_LIFE`. Some clients drop its `thought`. */
const isSign = ({ text, thought, ...rest }: Part): boolean =>
  text === SIGN_TEXT && (thought ?? true) && Object.values(rest).every((value) => value == null);

/** Leaves out what earlier streams have sent as signs of life: clients keep them in their history. */
function withoutSigns(contents: Contents): Contents {
  return contents.flatMap((message) => {
    if (isFromUser(message)) return [message];
    const parts = message.parts?.filter((part) => !isSign(part) && !isEmptyText(part));
    return parts?.length === 0 && message.parts?.some(isSign) ? [] : [{ ...message, parts }];
  });
}

/** A client that knows no images keeps one as an empty text. */
const isEmptyText = ({ text, ...rest }: Part): boolean =>
  text === "" && Object.values(rest).every((value) => value == null);

/** Fields of the body that reach an upstream of this API unchanged. */
const PASSED = ["systemInstruction", "tools", "toolConfig", "safetySettings", "cachedContent"] as const;
/** Fields that have a meaning here, or for the job of the line. */
const READ = [...PASSED, "contents", "generationConfig", "model", "key", "metadata"] as readonly string[];
/** Fields of `generationConfig` and of its `imageConfig` that are not passed on as they came. */
const OWN_CONFIG = ["responseModalities", "responseMimeType", "seed", "imageConfig"] as const;
const OWN_IMAGE_CONFIG = [
  ...["aspectRatio", "imageSize", "outputMimeType", "imageOutputOptions"],
  ...["pixels", "quality", "background", "negativePrompt"],
] as const;

type Body = NativeBody<"GenerateContent">;

/**
 * Returns what the request says beyond a prompt, its images and the options of `CheckedContent`. `places`: where the images
 * were, in their order. `modalities`: those that the caller has named.
 */
function verbatimOf(
  { contents, generationConfig, ...body }: Body,
  { places, prompt, modalities }: { places: readonly string[]; prompt: string; modalities: unknown },
): VerbatimRequest | undefined {
  const turns = contents.flatMap((message, i) => {
    const parts = (message.parts ?? []).flatMap((part, j) => {
      const { inlineData: _inlineData, fileData: _fileData, ...rest } = part;
      if (!hasImage(part)) return [rest];
      const reference = places.indexOf(`contents[${i}].parts[${j}]`);
      if (reference >= 0) return [{ reference, ...rest }];
      return part.thought === true || Object.keys(rest).length === 0 ? [] : [rest];
    });
    return parts.length === 0 ? [] : [{ ...message, parts }];
  });
  const plain = [{ text: prompt }, ...places.map((_, reference) => ({ reference }))];
  const [only, second] = turns;
  const isPlain = second === undefined && isFromUser(only ?? {}) && isDeepStrictEqual(trimmed(only), plain);
  const imageConfig = without(generationConfig.imageConfig ?? {}, OWN_IMAGE_CONFIG);
  const named = Array.isArray(modalities) ? modalities.map((each) => String(each).toUpperCase()) : [];
  const isUsual = modalities === undefined || (named.includes("TEXT") && named.includes("IMAGE"));
  const config = {
    ...(isUsual ? {} : { responseModalities: modalities }),
    ...without(generationConfig, [...OWN_CONFIG, ...UNREAD_CONFIG]),
    ...(isEmpty(imageConfig) ? {} : { imageConfig }),
  };
  const passed = PASSED.map((name) => [name, body[name]] as const).filter(([, value]) => !saysNothing(value));
  const fields = {
    ...(isPlain ? {} : { contents: turns }),
    ...Object.fromEntries(passed),
    ...(isEmpty(config) ? {} : { generationConfig: config }),
  };
  return isEmpty(fields) ? undefined : { api: "native", fields };
}

/** The parts of a message without the blanks around its texts. */
const trimmed = (message: { parts: readonly object[] } | undefined) =>
  message?.parts.map((part) => ("text" in part ? { ...part, text: String(part.text).trim() } : part));

/** Without these fields, and without those that are null. */
function without(value: object, names: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(value).filter(([name, field]) => field != null && !names.includes(name)),
  );
}

const isEmpty = (value: object) => Object.keys(value).length === 0;

/** Libraries send an instruction without a text, and lists without entries. */
function saysNothing(value: unknown): boolean {
  if (value === null || value === undefined || value === "") return true;
  if (Array.isArray(value)) return value.every(saysNothing);
  if (!isObject(value)) return false;
  const { role: _, ...fields } = value;
  return Object.values(fields).every(saysNothing);
}

/** Fields that mean another number of pictures, or another size of theirs, than the request is made and paid for. */
const UNREAD_CONFIG = ["candidateCount", "candidate_count", "responseFormat", "response_format"] as const;

/** Returns the names of fields that have no effect, whatever makes the image. */
function unreadFields({ generationConfig, ...body }: Body): string[] {
  const unknown = Object.entries(body).filter(([name, value]) => value != null && !READ.includes(name));
  const unread = UNREAD_CONFIG.filter((name) => (generationConfig[name] ?? 1) !== 1);
  return [...unknown.map(([name]) => name), ...unread.map((name) => `${CONFIG}.${name}`)];
}

/** A text of which the end was cut off while it was read cannot be passed on. */
function refuseCutTexts(contents: Contents, { promptChars }: Pick<Limits, "promptChars">): void {
  for (const [i, { parts }] of contents.entries()) {
    const j = (parts ?? []).findIndex(({ text }) => text != null && text.length >= 4 * promptChars);
    if (j >= 0)
      throw invalidArgument(`contents[${i}].parts[${j}].text`, `has ${4 * promptChars} characters or more`);
  }
}

type Part = NonNullable<Contents[number]["parts"]>[number];

async function receive(
  { at, inlineData, fileData }: Pick<Part, "inlineData" | "fileData"> & { at: string },
  rules: Required<ContentRules>,
): Promise<ReceivedImage> {
  if (inlineData != null) return receiveInline(`${at}.inlineData`, inlineData, rules);
  const field = `${at}.fileData.fileUri`;
  const image = await rules.findFileImage(fileData?.fileUri ?? "");
  if (image === null)
    throw invalidArgument(field, "must be the uri of a file that was uploaded with this key");
  const max = rules.limits.referenceImageBytes;
  if (image.sizeBytes > max) throw invalidArgument(field, `is larger than ${formatBytes(max)}`);
  return { image, declared: null, fields: { type: field, bytes: field, amount: at } };
}

function receiveInline(
  at: string,
  given: NonNullable<Part["inlineData"]>,
  rules: Required<ContentRules>,
): ReceivedImage {
  const { mimeType, data } = given;
  const declared = rules.strictImageConfig ? mimeType : null;
  if (declared !== null && !isImageMimeType(declared)) {
    throw invalidArgument(`${at}.mimeType`, "must be image/png, image/jpeg or image/webp");
  }
  if (data === "") throw invalidArgument(`${at}.data`, "is required: the Base64 of the image");
  const maxBytes = rules.limits.referenceImageBytes;
  const image = receiveImage(data, { maxBytes, base64: "lenient", sent: rules.sent });
  if (typeof image === "string") throw invalidArgument(`${at}.data`, image);
  return { image, declared, fields: { type: `${at}.mimeType`, bytes: `${at}.data`, amount: at } };
}

/** The fields that have a spelling with underscores, too. */
const CAMEL = Object.fromEntries(
  [
    "systemInstruction",
    "safetySettings",
    "toolConfig",
    "cachedContent",
    "thoughtSignature",
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
    "negativePrompt",
    "displayName",
    "inputConfig",
    "fileName",
  ].map((name) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), name]),
);

/** The fields whose content is read here. Any other content belongs to the caller, and stays as it came. */
const WITHIN: ReadonlySet<string> = new Set([
  ...["contents", "parts", "inlineData", "fileData"],
  ...["generationConfig", "imageConfig", "imageOutputOptions"],
  ...["file", "batch", "inputConfig", "requests"],
]);

/**
 * The value with its snake_case fields in lowerCamelCase, in objects up to `levels` deep: by default all that are read here.
 * Where a field has both spellings, the one in lowerCamelCase counts.
 */
export function camelKeys(value: unknown, levels = Number.POSITIVE_INFINITY): unknown {
  if (levels === 0) return value;
  if (Array.isArray(value)) return value.map((inner) => camelKeys(inner, levels));
  if (value === null || typeof value !== "object") return value;
  const entries = Object.entries(value);
  return Object.fromEntries(
    entries
      .filter(([key]) => !(Object.hasOwn(CAMEL, key) && Object.hasOwn(value, CAMEL[key] ?? "")))
      .map(([key, inner]) => {
        const name = (Object.hasOwn(CAMEL, key) ? CAMEL[key] : undefined) ?? key;
        return [name, WITHIN.has(name) ? camelKeys(inner, levels - 1) : inner];
      }),
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
  /** What the model takes. */
  options: OptionFacts;
  /** How many input images its providers take. Default: as many as a request may have. */
  imageLimit?: number;
}

type ImageConfig = NonNullable<NativeBody<"GenerateContent">["generationConfig"]["imageConfig"]>;

const CONFIG = "generationConfig";
const IMAGE_CONFIG = `${CONFIG}.imageConfig`;

/**
 * Checks and normalises the body of a real-time request for this model. The order is fixed, and the first failure is
 * thrown: number of entries, types, options (modalities, ratio, size, format), text, images.
 */
export async function checkContent(body: unknown, rules: ContentRules): Promise<CheckedContent> {
  const given = rules.strictImageConfig ? camelKeys(body) : withModalities(camelKeys(body));
  refuseTooMany(given);
  const parsed = parseArgument(nativeSchemas.GenerateContent, given);
  const { generationConfig } = parsed;
  const contents = withoutSigns(parsed.contents);
  checkModalities(generationConfig.responseModalities);
  if (generationConfig.imageConfig == null && rules.strictImageConfig) {
    throw invalidArgument(IMAGE_CONFIG, "is required: the parameters of the image, or {}");
  }
  const imageConfig = generationConfig.imageConfig ?? {};
  const { size, ratio } = checkShape(imageConfig, rules.options);
  const mimeType = checkFormat(imageConfig, generationConfig.responseMimeType);
  const asked = checkAsked(generationConfig.seed ?? null, imageConfig, mimeType, rules);
  checkRoles(contents);
  refuseUnstorable(contents);
  const { prompt, earlier } = readTurns(contents, rules.limits);
  refuseCutTexts(contents, rules.limits);
  const { images, first, places, leftOut } = await readImages(contents, {
    sent: NO_SENT_TEXTS,
    findFileImage: async () => null,
    imageLimit: MAX_INPUT_IMAGES,
    ...rules,
  });
  const modalities = fieldOf(fieldOf(camelKeys(body), CONFIG), "responseModalities") ?? undefined;
  const verbatim = verbatimOf({ ...parsed, contents }, { places, prompt, modalities });
  const ignored = [...unreadFields(parsed), ...leftOut];
  const options = {
    size,
    ratio: ratio ?? (first === null ? DEFAULT_RATIO : nearestRatio(first, rules.options)),
    keepsRatio: ratio === null,
    mimeType,
    ...asked,
  };
  const more = { ...(verbatim && { verbatim }), ...(ignored.length > 0 && { ignored }) };
  return { prompt, earlier, images, options, ...more };
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
    throw invalidArgument("contents", `has ${contents.length} messages; at most ${max} are allowed`);
  }
  let parts = 0;
  for (const [i, message] of contents.entries()) {
    parts += listOf(message, "parts").length;
    if (parts > max)
      throw invalidArgument(`contents[${i}].parts`, `all contents have more than ${max} parts together`);
  }
  if (listOf(fieldOf(body, CONFIG), "responseModalities").length > max) {
    throw invalidArgument(`${CONFIG}.responseModalities`, `has more than ${max} entries`);
  }
}

function listOf(holder: unknown, name: string): readonly unknown[] {
  const list = fieldOf(holder, name);
  return Array.isArray(list) ? list : [];
}

const fieldOf = (holder: unknown, name: string) =>
  (holder as Record<string, unknown> | null | undefined)?.[name];

function checkModalities(modalities: readonly string[]): void {
  const at = `${CONFIG}.responseModalities`;
  const given = modalities.map((modality) => modality.toUpperCase());
  if (!given.includes("IMAGE")) throw invalidArgument(at, "must contain IMAGE");
  const other = given.find((modality) => modality !== "IMAGE" && modality !== "TEXT");
  if (other !== undefined) throw invalidArgument(at, "takes only TEXT and IMAGE");
}

/** Reads size and ratio, or the pixels that stand for both. */
function checkShape(
  config: ImageConfig,
  options: OptionFacts,
): { size: ImageSize; ratio: AspectRatio | null } {
  if (!config.pixels) return { size: checkSize(config, options), ratio: checkRatio(config, options) };
  const at = `${IMAGE_CONFIG}.pixels`;
  if (config.imageSize || config.aspectRatio)
    throw invalidArgument(at, "leave out imageSize and aspectRatio");
  const pixels = readPixels(config.pixels);
  if (pixels === null) throw invalidArgument(at, "must be width and height, such as 1536x1024");
  const found = sizeOfPixels(options, pixels);
  if (found === null)
    throw invalidArgument(at, `are not possible; this model takes ${pixelAdvice(options, pixels)}`);
  return found;
}

function checkRatio({ aspectRatio }: ImageConfig, { ratios }: OptionFacts): AspectRatio | null {
  if (aspectRatio == null || aspectRatio === "") return null;
  const known = ratios.find((ratio) => ratio === aspectRatio);
  if (known !== undefined) return known;
  const problem = `the aspect ratio has an unsupported value; this model takes ${ratios.join(", ")}`;
  throw invalidArgument(`${IMAGE_CONFIG}.aspectRatio`, problem);
}

function checkSize({ imageSize }: ImageConfig, { tiers: sizes }: OptionFacts): SizeTier {
  const asked = imageSize || "1K";
  const size = sizes.find((known) => known === asked);
  if (size !== undefined) return size;
  const at = `${IMAGE_CONFIG}.imageSize`;
  const upper = SIZE_TIERS.find((tier) => tier === asked.toUpperCase());
  if (upper !== undefined && upper !== asked)
    throw invalidArgument(at, `must be written with a capital K: ${upper}`);
  throw invalidArgument(at, `the image size has an unsupported value; this model makes ${sizes.join(", ")}`);
}

function checkAsked(
  seed: number | null,
  { quality, background, negativePrompt }: ImageConfig,
  mimeType: ImageMimeType,
  { options, limits }: ContentRules,
): Pick<ImageOptions, (typeof PASSED_ON)[number]> {
  const look = { quality: quality || null, background: background || null, negativePrompt };
  const rules = { facts: options, mimeType, limits, usualQuality: options.defaultQuality };
  const checked = checkLook(look, rules, (option, problem) =>
    invalidArgument(`${IMAGE_CONFIG}.${option}`, problem),
  );
  return { ...checked, seed: checkSeed(seed, options) };
}

function checkSeed(seed: number | null, options: ContentRules["options"]): number | null {
  if (seed === null) return null;
  if (!options.seed) throw invalidArgument(`${CONFIG}.seed`, "the model takes none");
  if (Number.isInteger(seed) && seed >= 0 && seed <= options.maxSeed) return seed;
  throw invalidArgument(`${CONFIG}.seed`, `must be a whole number from 0 to ${options.maxSeed}`);
}

function checkFormat(config: ImageConfig, responseMimeType: string | null | undefined): ImageMimeType {
  const nested = config.imageOutputOptions?.mimeType;
  const [field, asked] = nested
    ? ["imageOutputOptions.mimeType", nested]
    : ["outputMimeType", config.outputMimeType];
  if (asked) {
    if (isImageMimeType(asked)) return asked;
    throw invalidArgument(`${IMAGE_CONFIG}.${field}`, "must be image/png, image/jpeg or image/webp");
  }
  // This field also holds formats of text. Only an image type concerns the image.
  return responseMimeType && isImageMimeType(responseMimeType) ? responseMimeType : "image/png";
}

type Contents = NativeBody<"GenerateContent">["contents"];

function checkRoles(contents: Contents): void {
  contents.forEach(({ role }, i) => {
    if (!role || role === "user" || role === "model") return;
    throw invalidArgument(`contents[${i}].role`, "must be user or model");
  });
  if (!contents.some(isFromUser)) throw invalidArgument("contents", "needs at least one user message");
}

/** Texts of the model too: a text that cannot be passed on unchanged is refused. */
function refuseUnstorable(contents: Contents): void {
  for (const [i, { parts }] of contents.entries()) {
    const j = (parts ?? []).findIndex(({ text }) => text != null && hasUnstorableText(text));
    if (j < 0) continue;
    throw invalidArgument(`contents[${i}].parts[${j}].text`, "must not hold NUL or half of a surrogate pair");
  }
}
