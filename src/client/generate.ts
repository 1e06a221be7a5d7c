import { randomBytes } from "node:crypto";
import type { SizeTier } from "../contract/images/image-sizes.ts";
import type { ImageMimeType } from "../contract/images/image-types.ts";
import type { GenerateContentBody } from "../contract/native-api/generate-content.ts";
import {
  IDEMPOTENCY_KEY_HEADER,
  MAX_COST_HEADER,
  MAY_BE_PAID_TWICE_HEADER,
  routes,
} from "../contract/routes.ts";
import type { Http, HttpRequest } from "../http/http.ts";
import { readJson } from "../http/json-answer.ts";
import { microsToDecimal } from "../kernel/money.ts";
import { type ReadImage, readGenerated } from "./wire/read-generated.ts";

/** One image to make at once. */
export interface GenerateRequest {
  model: string;
  prompt: string;
  /** Images to edit or to follow. Empty: the image is made from the prompt alone. */
  images: readonly { mimeType: ImageMimeType; data: Buffer }[];
  /** Null: the service chooses. */
  aspectRatio: string | null;
  /** Null: the service's default, 1K. */
  size: SizeTier | null;
  /** Null: the service's default, PNG. */
  mimeType: ImageMimeType | null;
}

export interface GenerateOptions {
  signal?: AbortSignal | undefined;
  /** The most further attempts. Default, and upper bound: the number of the retry policy. */
  maxRetries?: number | undefined;
  /** The most that the image may cost, in micro-dollars, with the caller's consent to pay it. Default: null, none. */
  consentMicroUsd?: number | null;
  /**
   * With the same key, a service that takes keys bills the same request once. Printable ASCII, at most 250 characters.
   * Default: a random one for each call.
   */
  idempotencyKey?: string;
  /** Awaited before each attempt, repeated ones too, so that requests leave at a limited rate. */
  awaitTurnToSend?: (signal?: AbortSignal) => Promise<void>;
}

export interface GeneratedImage extends ReadImage {
  requestId: string | undefined;
  attempts: number;
  /** An upstream may have been paid for an earlier run of the request, too. */
  mayBePaidTwice: boolean;
}

/** The time that a response may take to begin, and the time without progress after that. */
export const REALTIME_TIMEOUTS_MS: Record<SizeTier, number> = {
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
    timeoutMs: REALTIME_TIMEOUTS_MS[request.size ?? "1K"],
    signal: options.signal,
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
      return { ...readGenerated(json, requestId), requestId, attempts, mayBePaidTwice };
    },
  );
}

function toBody({ prompt, images, aspectRatio, size, mimeType }: GenerateRequest): GenerateContentBody {
  const inputs = images.map(({ mimeType, data }) => ({
    inlineData: { mimeType, data: data.toString("base64") },
  }));
  return {
    contents: [{ role: "user", parts: [{ text: prompt }, ...inputs] }],
    generationConfig: {
      responseModalities: ["TEXT", "IMAGE"],
      imageConfig: {
        ...(aspectRatio === null ? {} : { aspectRatio }),
        ...(size === null ? {} : { imageSize: size }),
        ...(mimeType === null ? {} : { outputMimeType: mimeType }),
      },
    },
  };
}
