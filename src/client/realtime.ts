import { randomBytes } from "node:crypto";
import { z } from "zod";
import { readAnnouncedPixels } from "../contract/batch-api.ts";
import { ImgbatchError, LOST_BEFORE } from "../contract/errors.ts";
import {
  type ImageMimeType,
  type ImageSize,
  RATIOS,
  readPixels,
  type ShapeFacts,
  SIZE_TIERS,
  type SizeTier,
  sizeOfPixels,
  sniffImageType,
  tierOf,
} from "../contract/image-formats.ts";
import { missingEnd } from "../contract/image-structure.ts";
import type { NativeBody } from "../contract/native-api.ts";
import {
  IDEMPOTENCY_KEY_HEADER,
  MAX_COST_HEADER,
  MAY_BE_PAID_TWICE_HEADER,
  routes,
  UPSTREAM_COST_HEADER,
} from "../contract/routes.ts";
import { whyNoImage } from "../contract/statuses.ts";
import { type Http, type HttpRequest, readJson } from "../http/http.ts";
import type { Clock } from "../kernel/clock.ts";
import { microsToDecimal, numberToMicros } from "../kernel/money.ts";
import { truncateCodePoints } from "../kernel/text.ts";
import { endlessness, MOST_USD, unexpectedAnswer, usdOf } from "./answers.ts";
import type { TakenOptions } from "./models.ts";

/** One image to make at once. */
interface GenerateRequest {
  model: string;
  prompt: string;
  /** Images to edit or to follow. Empty: the image is made from the prompt alone. */
  images: readonly { mimeType: ImageMimeType; data: Buffer }[];
  /** Null: the service chooses. */
  aspectRatio: string | null;
  /** Null: the service's default, 1K. */
  size: ImageSize | null;
  /** Null: as the model does it by itself. Only our service has words for these three: see `RealtimeModel.options`. */
  quality: string | null;
  background: string | null;
  negativePrompt: string | null;
  /** Null: the service chooses one, if it has any. */
  seed: number | null;
  /** Null: the service's default, PNG. */
  mimeType: ImageMimeType | null;
}

export interface GenerateOptions {
  signal?: AbortSignal | undefined;
  /** Ends an attempt under way instead of `signal`, which then only prevents further attempts. Default: `signal`. */
  answerSignal?: AbortSignal | undefined;
  /** The most further attempts. Default, and upper bound: the number of the retry policy. */
  maxRetries?: number | undefined;
  /** The most that the image may cost, in micro-dollars, with the caller's consent to pay it. Default: null, none. */
  consentMicroUsd?: number | null;
  /**
   * With the same key, a service that takes keys bills the same request once. Printable ASCII, at most 250 characters.
   * Default: a random one for each call.
   */
  idempotencyKey?: string;
  /**
   * Called for each answer, with or without an image, with the US dollars that upstreams billed for it. Not called where the
   * service does not say it.
   */
  onBilled?: (usd: number) => void;
  /** Awaited before each attempt, repeated ones too, so that requests leave at a limited rate. */
  awaitTurnToSend?: (signal?: AbortSignal) => Promise<void>;
}

interface GeneratedImage extends ReadImage {
  requestId: string | undefined;
  attempts: number;
  /** An upstream may have been paid for an earlier run of the request, too. */
  mayBePaidTwice: boolean;
}

/** The time that a response may take to begin, and the time without progress after that. */
const REALTIME_TIMEOUTS_MS: Record<SizeTier, number> = {
  "512": 120_000,
  "1K": 120_000,
  "2K": 180_000,
  "4K": 300_000,
};

/** A 4K image in Base64 has tens of megabytes, and interim images may come with it. */
const MAX_ANSWER_BYTES = 192 * 1024 * 1024;

/**
 * Makes one image. Temporary errors are retried; an answer without an image is retried once, with a key of its own. All
 * other attempts have the same idempotency key. Not every service takes it: there an attempt whose answer was lost may be
 * billed, and an answer that breaks off is retried once. Throws `IMAGE_REFUSED` when the prompt
 * or the image was refused, `NO_IMAGES` for an answer without a usable image, and the errors of `Http`.
 */
export async function generateImage(
  http: Http,
  request: GenerateRequest,
  options: GenerateOptions = {},
): Promise<GeneratedImage> {
  let attempts = 0;
  let wasEmpty = false;
  const { consentMicroUsd = null, idempotencyKey = `ib1-now-${randomBytes(16).toString("hex")}` } = options;
  const consent = consentMicroUsd === null ? {} : { [MAX_COST_HEADER]: microsToDecimal(consentMicroUsd) };
  const call: HttpRequest = {
    method: "POST",
    path: routes.generateContent(request.model),
    body: JSON.stringify(toBody(request)),
    timeoutMs: REALTIME_TIMEOUTS_MS[tierOf(request.size ?? "1K")],
    signal: options.signal,
    answerSignal: options.answerSignal,
    bills: true,
    alsoRetry: (error) => {
      if (error.code !== "NO_IMAGES" || wasEmpty) return false;
      wasEmpty = true;
      return true;
    },
    ...(options.maxRetries === undefined ? {} : { maxRetries: options.maxRetries }),
  };
  return http.stream(
    async () => {
      await options.awaitTurnToSend?.(options.signal);
      attempts++;
      const key = wasEmpty ? `${idempotencyKey}-2` : idempotencyKey;
      return { ...call, headers: { ...consent, [IDEMPOTENCY_KEY_HEADER]: key } };
    },
    async (answer) => {
      const { json, requestId } = await readJson(answer, MAX_ANSWER_BYTES);
      const mayBePaidTwice = answer.headers.get(MAY_BE_PAID_TWICE_HEADER) === "true";
      const billedUsd = usdOf(Number(answer.headers.get(UPSTREAM_COST_HEADER) ?? Number.NaN));
      if (billedUsd !== null) options.onBilled?.(billedUsd);
      try {
        return { ...readGenerated(json, requestId), requestId, attempts, mayBePaidTwice };
      } catch (error) {
        if (!mayBePaidTwice || !(error instanceof ImgbatchError)) throw error;
        throw new ImgbatchError(error.code, `${error.message} ${LOST_BEFORE}`, { ...error, cause: error });
      }
    },
  );
}

function toBody(request: GenerateRequest): NativeBody<"GenerateContent"> {
  const { prompt, images, seed, mimeType, quality, background, negativePrompt } = request;
  const inputs = images.map(({ mimeType, data }) => ({
    inlineData: { mimeType, data: data.toString("base64") },
  }));
  return {
    contents: [{ role: "user", parts: [{ text: prompt }, ...inputs] }],
    generationConfig: {
      responseModalities: ["TEXT", "IMAGE"],
      ...(seed === null ? {} : { seed }),
      imageConfig: {
        ...shapeOf(request),
        ...(mimeType === null ? {} : { outputMimeType: mimeType }),
        ...(quality === null ? {} : { quality }),
        ...(background === null || background === "auto" ? {} : { background }),
        ...(negativePrompt === null ? {} : { negativePrompt }),
      },
    },
  };
}

/** The shapes that the native API has words for. */
export const NATIVE_SHAPES: ShapeFacts = { tiers: SIZE_TIERS, ratios: RATIOS.extended, pixels: null };

/** The native API is asked for pixels by the size and the ratio that stand for them, or in our own words where none do. */
function shapeOf({ size, aspectRatio }: Pick<GenerateRequest, "size" | "aspectRatio">) {
  const exact = size === null ? null : readPixels(size);
  if (exact !== null) {
    const named = sizeOfPixels(NATIVE_SHAPES, exact);
    return named === null ? { pixels: String(size) } : { aspectRatio: named.ratio, imageSize: named.size };
  }
  return { ...(aspectRatio === null ? {} : { aspectRatio }), ...(size === null ? {} : { imageSize: size }) };
}

/** Other services leave out fields or send null. A missing field is null. */
const text = z.string().nullish().catch(null);

const partSchema = z.looseObject({
  text,
  thought: z.boolean().nullish().catch(null),
  inlineData: z.looseObject({ mimeType: text, data: text }).nullish().catch(null),
});

const answerSchema = z.looseObject({
  candidates: z
    .array(
      z.looseObject({
        content: z
          .looseObject({ parts: z.array(partSchema).nullish().catch(null) })
          .nullish()
          .catch(null),
        finishReason: text,
        finishMessage: text,
      }),
    )
    .nullish()
    .catch(null),
  promptFeedback: z.looseObject({ blockReason: text, blockReasonMessage: text }).nullish().catch(null),
  usageMetadata: z.unknown().optional(),
  modelVersion: text,
});
type Answer = z.infer<typeof answerSchema>;

/** The main image of an answer. */
interface ReadImage {
  data: Buffer;
  /** Found from the bytes, not from the answer's claim. */
  mimeType: ImageMimeType;
  /** Null when the service did not say which model ran. */
  modelVersion: string | null;
  /** The text of the model beside the image; empty for none. */
  text: string;
  /** Token counts, as they came. */
  usage: unknown;
  /** Images of the answer besides the main one. */
  furtherImages: number;
}

const SHOWN_TEXT = 300;

/**
 * Returns the main image of an answer of 2xx. Interim images of a thinking model do not count. Throws `IMAGE_REFUSED` and
 * `NO_IMAGES` with the reason that the service gave.
 */
function readGenerated(json: unknown, requestId: string | undefined): ReadImage {
  const parsed = answerSchema.safeParse(json);
  const answer: Answer = parsed.success ? parsed.data : {};
  const candidates = answer.candidates ?? [];
  const parts = candidates
    .flatMap((candidate) => candidate.content?.parts ?? [])
    .filter((part) => part.thought !== true);
  const [first, ...further] = parts.flatMap((part) => part.inlineData?.data || []);
  const said = parts
    .flatMap((part) => part.text || [])
    .join(" ")
    .trim();
  if (first === undefined) throw withoutImage(answer, requestId);
  const data = decodeBase64(first);
  if (data === null) throw noImage("the Base64 of the image does not decode", requestId);
  const mimeType = sniffImageType(data);
  if (mimeType === null) throw noImage("the image is neither PNG, JPEG nor WebP", requestId);
  const missing = missingEnd(data, mimeType);
  if (missing !== null) throw noImage(`the image is not whole: ${missing}`, requestId);
  return {
    data,
    mimeType,
    modelVersion: answer.modelVersion ?? null,
    text: said,
    usage: answer.usageMetadata ?? null,
    furtherImages: further.length,
  };
}

function withoutImage(answer: Answer, requestId: string | undefined): ImgbatchError {
  const { refused, reason, words } = whyNoImage(answer);
  if (refused === null) return noImage(withWords(reason, words), requestId);
  const what = refused === "prompt" ? `the prompt (${reason})` : `to make this image (${reason})`;
  const message = `The service refused ${withWords(what, words)}.`;
  return new ImgbatchError("IMAGE_REFUSED", message, { requestId });
}

function noImage(why: string, requestId: string | undefined): ImgbatchError {
  return new ImgbatchError("NO_IMAGES", `The service answered without a usable image: ${why}.`, {
    requestId,
  });
}

function withWords(what: string, words: string): string {
  if (words === "") return what;
  return `${what}: ${truncateCodePoints(words, SHOWN_TEXT, "…").replace(/\.$/, "")}`;
}

/** Takes either alphabet, with or without padding. Null for other text. */
function decodeBase64(base64: string): Buffer | null {
  if (/[^A-Za-z0-9+/_=-]/.test(base64)) return null;
  // A pattern that looks for padding at the end needs quadratic time for a long row of it.
  let digits = base64.length;
  while (base64[digits - 1] === "=") digits--;
  const data = Buffer.from(base64, "base64");
  return digits % 4 !== 1 && data.length === Math.floor((digits * 3) / 4) ? data : null;
}

/** A list with more pages is endless. */
const MOST_PAGES = 1000;

const texts = z.array(z.string()).nullish().catch(null);

const pricesSchema = z.record(z.string(), z.number().min(0).max(MOST_USD));

const modelSchema = z.looseObject({
  name: z.string().min(1),
  supportedGenerationMethods: texts,
  aspectRatios: texts,
  imageSizes: texts,
  maxInputImages: z.int().nullish().catch(null),
  imageOptions: z
    .looseObject({
      pixels: z.unknown(),
      quality: z.array(z.string()).catch([]),
      defaultQuality: text,
      background: z.array(z.string()).catch([]),
      negativePrompt: z.boolean().catch(false),
    })
    .nullish()
    .catch(null),
  pricing: z
    .looseObject({
      images: pricesSchema,
      qualities: z.record(z.string(), pricesSchema).nullish().catch(null),
      paid: z.boolean().nullish().catch(null),
      play_money: z.boolean().nullish().catch(null),
    })
    .nullish()
    .catch(null),
});

const listSchema = z.looseObject({
  models: z.array(z.unknown()).nullish(),
  nextPageToken: z.string().nullish().catch(null),
});

type Prices = Readonly<Record<string, number>>;

type RealtimeOptions = Pick<
  TakenOptions,
  "pixels" | "qualities" | "defaultQuality" | "backgrounds" | "negativePrompt"
>;

/** An entry of the real-time model list. A fact that the service does not state is null. */
export interface RealtimeModel {
  id: string;
  aspectRatios: readonly string[] | null;
  imageSizes: readonly string[] | null;
  maxInputImages: number | null;
  /** What a request may ask for besides. */
  options: RealtimeOptions | null;
  /** The price of one image in micro-dollars, by size. */
  costsMicroUsd: Prices | null;
  /** The same for each quality. */
  qualityCostsMicroUsd: Readonly<Record<string, Prices>>;
  /** Whether the service reports that its images cost real money. */
  isPaid: boolean;
  /** Whether the service reports that its images are drawn, and its prices are no real money. */
  isPlay: boolean;
  raw: Record<string, unknown>;
}

/**
 * Lists the models that this key can make real-time images with, in the service's order. Models that cannot make images
 * are left out. Throws `BAD_RESPONSE` for a list without an end.
 */
export async function listRealtimeModels(http: Http, signal?: AbortSignal): Promise<RealtimeModel[]> {
  const models = new Map<string, RealtimeModel>();
  const isEndless = endlessness();
  let cursor = "";
  for (let pages = 1; ; pages++) {
    const query = cursor === "" ? "" : `?pageToken=${encodeURIComponent(cursor.toWellFormed())}`;
    const answer = await http.json({ method: "GET", path: routes.nativeModels + query, signal });
    const page = listSchema.safeParse(answer.json);
    const next = page.data?.nextPageToken || null;
    if (!page.success || (next !== null && (pages > MOST_PAGES || isEndless(next, answer.bytes))))
      throw unexpectedAnswer("a list of models", answer.requestId);
    for (const model of (page.data.models ?? []).flatMap(readModel)) models.set(model.id, model);
    if (next === null) return [...models.values()];
    cursor = next;
  }
}

function readModel(value: unknown): RealtimeModel[] {
  const parsed = modelSchema.safeParse(value);
  if (!parsed.success) return [];
  const wire = parsed.data;
  if (wire.supportedGenerationMethods?.includes("generateContent") === false) return [];
  const microsOf = (prices: Prices) =>
    Object.fromEntries(Object.entries(prices).map(([size, usd]) => [size, numberToMicros(usd)]));
  const qualities = Object.entries(wire.pricing?.qualities ?? {});
  return [
    {
      id: wire.name.replace(/^models\//, ""),
      aspectRatios: wire.aspectRatios ?? null,
      imageSizes: wire.imageSizes ?? null,
      maxInputImages: wire.maxInputImages ?? null,
      options: optionsOf(wire.imageOptions),
      costsMicroUsd: wire.pricing ? microsOf(wire.pricing.images) : null,
      qualityCostsMicroUsd: Object.fromEntries(qualities.map(([word, prices]) => [word, microsOf(prices)])),
      isPaid: wire.pricing?.paid === true,
      isPlay: wire.pricing?.play_money === true,
      raw: value as Record<string, unknown>,
    },
  ];
}

function optionsOf(announced: z.infer<typeof modelSchema>["imageOptions"]): RealtimeOptions | null {
  if (!announced) return null;
  const {
    pixels,
    quality: qualities,
    defaultQuality = null,
    background: backgrounds,
    negativePrompt,
  } = announced;
  return { pixels: readAnnouncedPixels(pixels), qualities, defaultQuality, backgrounds, negativePrompt };
}

const MINUTE_MS = 60_000;

/**
 * Returns a function that resolves for at most `perMinute` callers in any minute, in the order of their calls. Undefined
 * means no limit. Rejects with the reason of the caller's signal.
 */
export function createRateLimiter(
  perMinute: number | undefined,
  clock: Clock,
): (signal?: AbortSignal) => Promise<void> {
  if (perMinute === undefined) return async () => {};
  const passedAtMs: number[] = [];
  let last: Promise<void> = Promise.resolve();
  const pass = async (signal?: AbortSignal) => {
    signal?.throwIfAborted();
    const [earliest] = passedAtMs;
    if (earliest !== undefined && passedAtMs.length >= perMinute) {
      const waitMs = Math.min(MINUTE_MS, earliest + MINUTE_MS - clock.nowMs());
      if (waitMs > 0) await clock.sleep(waitMs, signal);
      passedAtMs.shift();
    }
    passedAtMs.push(clock.nowMs());
  };
  return (signal) => {
    const passed = last.then(() => pass(signal));
    last = passed.catch(() => {});
    return passed;
  };
}
