import type { AspectRatio, SizePx, SizeTier } from "../../contract/images/image-sizes.ts";
import type { ImageMimeType } from "../../contract/images/image-types.ts";
import type { ErrorSource, ItemErrorCode } from "../../contract/item-errors.ts";

/** One image to make. Everything that decides the picture is in here: a provider keeps no state between calls. */
export interface ImageRequest {
  /** The model that is to run: the one that the caller asked for, or the one that it stands for. */
  model: string;
  /** Trimmed, never empty. */
  prompt: string;
  /** The user's earlier texts in the same conversation, the newest last. Left out or empty when there are none. */
  earlier?: string;
  /** Which output of this prompt: 0 for the first. Another index means another picture. */
  outputIndex: number;
  tier: SizeTier;
  ratio: AspectRatio;
  /** The pixels that tier and ratio stand for. */
  size: SizePx;
  mimeType: ImageMimeType;
  /** They were checked: they decode, and have the declared type. */
  references: readonly ReferenceImage[];
  /** References in a storage that the provider reads and the service does not. */
  storedReferences: readonly { uri: string; mimeType: ImageMimeType }[];
  /** Counts the tries of this image, from 1: a repeated request is told apart from the same one sent twice. */
  attempt: number;
  origin: RequestOrigin;
}

/** Where an image is asked for: in a batch, in one that links a parent batch (as a retry does), or in real time. */
export type RequestOrigin = "batch" | "child-batch" | "realtime";

export interface ReferenceImage {
  /** Reads the bytes when they are needed, so that waiting requests take no memory. */
  read(): Promise<Buffer>;
  /** Lends the bytes to short work. It must not keep them, because their memory is used again. */
  lend<T>(work: (bytes: Buffer) => Promise<T>): Promise<T>;
  mimeType: ImageMimeType;
}

/** The result of a request. It may hold no image (a refusal without an error) or several. */
export interface GeneratedImages {
  images: readonly Buffer[];
  /** The version that made the image; null when the upstream returned none. */
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

/** A request inside an upstream job. */
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
  /** Returns the upstream's own name of the job. Items come one at a time, because their references can be large. */
  submit(jobId: string, items: AsyncIterable<JobItem>, signal: AbortSignal): Promise<string>;
  /** The upstream's name of the job submitted under this id, or null when none has arrived there. */
  find(jobId: string, signal: AbortSignal): Promise<string | null>;
  /** Returns the state of the job. It is polled again after `pollMs`. */
  poll(upstreamName: string, signal: AbortSignal): Promise<JobStatus>;
  readonly pollMs: number;
  /** Yields the results in any order, one at a time, because a job's output can be gigabytes. */
  results(upstreamName: string, signal: AbortSignal): AsyncIterable<JobResult>;
  /** Asks the upstream to stop the job. Rejects when the upstream refuses, as it may for a job that has ended. */
  cancel(upstreamName: string, signal: AbortSignal): Promise<void>;
}

export type ImageProvider = ItemProvider | JobProvider;

/** Why a provider made no image. `retryable`: the same request may succeed later. */
export class ProviderError extends Error {
  readonly code: ItemErrorCode;
  readonly source: ErrorSource;
  readonly retryable: boolean;
  /** The wait that the upstream asked for, in ms; null when it asked for none. */
  readonly retryAfterMs: number | null;
  /** The HTTP status of the upstream; null when there was no response. */
  readonly upstreamStatus: number | null;
  /** The model version that refused or made nothing; null when the provider returned none. */
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
