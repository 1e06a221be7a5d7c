import type { AspectRatio, SizePx, SizeTier } from "../../contract/images/image-sizes.ts";
import type { ImageMimeType } from "../../contract/images/image-types.ts";
import type { ErrorSource, ItemErrorCode } from "../../contract/item-errors.ts";

/** One image to make. Everything that decides the picture is in here: a provider keeps no state between calls. */
export interface ImageRequest {
  /** The model that is to run: the one that the caller asked for, or the one that it stands for. */
  model: string;
  /** Trimmed, never empty. */
  prompt: string;
  /** What the user said before in the same conversation, the newest last. Left out, or empty, where there is none. */
  earlier?: string;
  /** Which output of this prompt: 0 for the first. Another index means another picture. */
  outputIndex: number;
  tier: SizeTier;
  ratio: AspectRatio;
  /** The pixels that tier and ratio stand for. */
  size: SizePx;
  mimeType: ImageMimeType;
  /** Already checked: they decode, and are of the type that they say. */
  references: readonly ReferenceImage[];
  /** References that are kept in a storage which the provider can read, and the service does not. */
  storedReferences: readonly { uri: string; mimeType: ImageMimeType }[];
  /** 1 for the first try of this item. */
  attempt: number;
  /**
   * True when the batch of the item links a parent batch, as a retry of failed items does, and for a request outside
   * any batch: what is to fail only in a first batch does not fail then.
   */
  isRetryBatch: boolean;
}

export interface ReferenceImage {
  /** The bytes, read when they are needed: images that wait for their turn take no memory. */
  read(): Promise<Buffer>;
  /** The same for work that is soon done and keeps nothing of them: their memory is used again. */
  lend<T>(work: (bytes: Buffer) => Promise<T>): Promise<T>;
  mimeType: ImageMimeType;
}

/** What came back: no image is possible (a refusal without an error), and so are several. */
export interface GeneratedImages {
  images: readonly Buffer[];
  /** The version that really made the image, when the upstream says. */
  modelVersion: string | null;
}

interface ProviderBase {
  /** The name in the configuration; shown to callers as the batch's `provider`. */
  readonly name: string;
  /** How many requests may run at once. */
  readonly concurrency: number;
  /** Whether this provider makes images for the model. */
  serves(model: string): boolean;
  /** Frees what the provider holds (threads, sockets). */
  close(): Promise<void>;
}

/** Makes one image per call. */
export interface ItemProvider extends ProviderBase {
  readonly kind: "item";
  /** Rejects with `ProviderError`, or with the signal's reason when aborted. */
  generate(request: ImageRequest, signal: AbortSignal): Promise<GeneratedImages>;
}

/** A request inside an upstream job, told apart by its key. */
export interface JobItem {
  /** Unique within the job; comes back with the result. */
  key: string;
  request: ImageRequest;
}

export type JobStatus =
  | { state: "running" }
  | { state: "succeeded" }
  | { state: "failed" | "cancelled" | "expired"; message: string };

export type JobResult = { key: string } & ({ output: GeneratedImages } | { error: ProviderError });

/**
 * Hands a whole batch to an upstream that works on it by itself. `jobId` is chosen by us and stored before
 * `submit`, so that a restart can find a job whose answer was lost (`find`) instead of paying for a second one.
 */
export interface JobProvider extends ProviderBase {
  readonly kind: "job";
  /** Answers the upstream's own name of the job. Items come one at a time: their references can be large. */
  submit(jobId: string, items: AsyncIterable<JobItem>, signal: AbortSignal): Promise<string>;
  /** The upstream's name of the job submitted under this id, or null when none has arrived there. */
  find(jobId: string, signal: AbortSignal): Promise<string | null>;
  /** How the job stands. `pollMs` after it, it is asked again. */
  poll(upstreamName: string, signal: AbortSignal): Promise<JobStatus>;
  readonly pollMs: number;
  /** Results in any order, one at a time: a job's output can be gigabytes. */
  results(upstreamName: string, signal: AbortSignal): AsyncIterable<JobResult>;
  /** Tells the upstream to stop the job; it may refuse for a job that has ended. */
  cancel(upstreamName: string, signal: AbortSignal): Promise<void>;
}

export type ImageProvider = ItemProvider | JobProvider;

/** Why a provider made no image. `retryable` says whether the same request may succeed later. */
export class ProviderError extends Error {
  readonly code: ItemErrorCode;
  readonly source: ErrorSource;
  readonly retryable: boolean;
  /** How long the upstream asked to wait, in ms; null when it did not say. */
  readonly retryAfterMs: number | null;
  /** The HTTP status that the upstream answered; null when it answered none. */
  readonly upstreamStatus: number | null;
  /** What refused, or made nothing, in the provider's own words; null when it did not say. */
  readonly modelVersion: string | null;

  constructor(
    code: ItemErrorCode,
    message: string,
    options: {
      source?: ErrorSource;
      retryable?: boolean;
      retryAfterMs?: number | null;
      upstreamStatus?: number | null;
      modelVersion?: string | null;
      cause?: unknown;
    } = {},
  ) {
    super(message, { cause: options.cause });
    this.name = "ProviderError";
    this.code = code;
    this.source = options.source ?? "provider";
    this.retryable = options.retryable ?? (code === "PROVIDER_RATE_LIMITED" || code === "PROVIDER_TIMEOUT");
    this.retryAfterMs = options.retryAfterMs ?? null;
    this.upstreamStatus = options.upstreamStatus ?? null;
    this.modelVersion = options.modelVersion ?? null;
  }
}
