import { ImgbatchError } from "../contract/errors.ts";
import type { GenerateContentBody } from "../contract/generate-content.ts";
import type { SizeTier } from "../contract/image-sizes.ts";
import type { ImageMimeType } from "../contract/image-types.ts";
import { REQUEST_ID_HEADER, routes } from "../contract/routes.ts";
import type { Http, HttpRequest } from "./http.ts";
import { type ReadImage, readGenerated } from "./read-generated.ts";

/** One image to make at once. */
export interface GenerateRequest {
  model: string;
  prompt: string;
  /** What to edit or to go by; none for an image from the prompt alone. */
  images: readonly { mimeType: ImageMimeType; data: Buffer }[];
  /** Null: the service decides. */
  aspectRatio: string | null;
  /** Null: the service's default, 1K. */
  size: SizeTier | null;
}

export interface GenerateOptions {
  signal?: AbortSignal | undefined;
  /** At most this many further attempts; default and most: as the retry policy says. */
  maxRetries?: number | undefined;
  /** Awaited before each attempt, repeated ones too. */
  pace?: (signal?: AbortSignal) => Promise<void>;
}

export interface GeneratedImage extends ReadImage {
  requestId: string | undefined;
  attempts: number;
}

/** How long one attempt may take. */
export const REALTIME_TIMEOUTS_MS: Record<SizeTier, number> = { "1K": 120_000, "2K": 180_000, "4K": 300_000 };

/**
 * Makes one image. What may pass is tried again, and an answer without an image once; there is no idempotency key, so
 * an attempt whose answer was lost may have been billed. Throws `IMAGE_REFUSED` when the prompt or the image was
 * refused, `NO_IMAGES` for an answer without a usable image, and what `Http` throws.
 * Rules: GEN-1, GEN-2, GEN-3, GEN-4.
 */
export async function generateImage(
  http: Http,
  request: GenerateRequest,
  options: GenerateOptions = {},
): Promise<GeneratedImage> {
  let attempts = 0;
  let wasEmpty = false;
  const call: HttpRequest = {
    method: "POST",
    path: routes.generateContent(request.model),
    body: JSON.stringify(toBody(request)),
    timeoutMs: REALTIME_TIMEOUTS_MS[request.size ?? "1K"],
    signal: options.signal,
    alsoRetry: (error) => {
      if (error.code !== "NO_IMAGES" || wasEmpty) return false;
      wasEmpty = true;
      return true;
    },
    ...(options.maxRetries === undefined ? {} : { maxRetries: options.maxRetries }),
  };
  return http.stream(
    async () => {
      await options.pace?.(options.signal);
      attempts++;
      return call;
    },
    async (response) => {
      const requestId = response.headers.get(REQUEST_ID_HEADER) ?? undefined;
      return { ...readGenerated(await readJson(response, requestId), requestId), requestId, attempts };
    },
  );
}

function toBody({ prompt, images, aspectRatio, size }: GenerateRequest): GenerateContentBody {
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
      },
    },
  };
}

async function readJson(response: Response, requestId: string | undefined): Promise<unknown> {
  const text = await response.text();
  try {
    return JSON.parse(text);
  } catch (cause) {
    const message = `The service answered HTTP ${response.status} with something that is not whole JSON. Is the base URL right?`;
    throw new ImgbatchError("BAD_RESPONSE", message, { cause, requestId, httpStatus: response.status });
  }
}
