import {
  type AspectRatio,
  type Background,
  DEFAULT_RATIO,
  type ImageMimeType,
  type ImageSize,
  type PixelSizes,
  type SizePx,
  type SizeTier,
} from "../../contract/image-formats.ts";
import type { ItemError, ItemErrorCode } from "../../contract/statuses.ts";
import { LONGEST_PAUSE_MS } from "../../contract/waiting.ts";

/**
 * What an image is asked to be like, besides its prompt and its input images. An item, a line of a job and a real-time request
 * have the same object, from the check of their body to the provider.
 */
export interface ImageOptions {
  /** A tier, or exact pixels such as `1536x1024`. */
  size: ImageSize;
  ratio: AspectRatio;
  /**
   * Nobody has asked for a ratio: `ratio` is the nearest to that of the first input image, or the default ratio without an
   * input image.
   */
  keepsRatio: boolean;
  mimeType: ImageMimeType;
  /** A word of the model's own, such as `high`. Null: the model's default. */
  quality: string | null;
  /** Null: the model decides. */
  background: Background | null;
  /** The same seed gives a similar picture. Of several outputs, the seed of the first one. Null: any seed. */
  seed: number | null;
  /** What the picture must not show. Null: nothing. */
  negativePrompt: string | null;
}

/** The options of a request that asks for nothing but a picture. */
export const DEFAULT_OPTIONS: ImageOptions = {
  size: "1K",
  ratio: DEFAULT_RATIO,
  keepsRatio: true,
  mimeType: "image/png",
  quality: null,
  background: null,
  seed: null,
  negativePrompt: null,
};

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
  /** `seed` is the seed of this output. */
  options: ImageOptions;
  /** The pixels that were asked for, else those that size and ratio stand for at this model. */
  pixels: SizePx;
  /** They were checked: they decode, and have the declared type. */
  references: readonly ReferenceImage[];
  /** Where the first reference is to change: a PNG of its size, transparent there. Left out: anywhere. */
  mask?: ReferenceImage;
  /** Counts the tries of this image, from 1: a repeated request is told apart from the same one sent twice. */
  attempt: number;
  /**
   * From 0 to 2^31 - 1, for upstreams that take a seed: the seed of the options, or a chosen one. A repeated request has the
   * same one.
   */
  seed: number;
  /** The quality whose price counts when none was asked for. Left out: the model has none. */
  defaultQuality?: string | undefined;
  origin: RequestOrigin;
  /** The same for each request for this image, and for no other. An upstream that takes it makes the image once. Left out: none. */
  repeatKey?: string;
  /** Left out: the request says no more than the other fields. */
  verbatim?: VerbatimRequest;
  /** How many unfinished pictures are wanted before the image. An upstream may have none, or fewer. Left out: none. */
  partialImages?: number;
  /** Where the task of a slow upstream is kept. Left out: nowhere. */
  task?: TaskMemory;
}

/** Returns the ratio to tell an upstream that keeps the ratio of a reference by itself: null for such a reference. */
export function toldRatio({ options, references }: ImageRequest): AspectRatio | null {
  return options.keepsRatio && references.length > 0 ? null : options.ratio;
}

/** Keeps what an upstream calls the work on one image, so that it is asked for after a restart and never begun again. */
export interface TaskMemory {
  /** The task that an earlier call has begun; null when none has. */
  readonly known: string | null;
  /** Resolves when the task is stored durably. Nothing may be asked about it before. */
  keep(task: string): Promise<void>;
}

/** The API of a vendor whose fields a request or an answer has. */
type VendorApi = "native" | "openai";

/**
 * What a request to a vendor's API says beyond the fields of `ImageRequest`. An upstream of the same API gets these fields
 * unchanged.
 */
export interface VerbatimRequest {
  api: VendorApi;
  /**
   * Fields of the body, as JSON. In `contents` of the native API, `{"reference": 0}` stands for the `inlineData` or the
   * `fileData` of the first reference.
   */
  fields: Readonly<Record<string, unknown>>;
}

/** The fields of `VerbatimRequest` that change the picture. An upstream of another API must refuse them. */
export const DECISIVE_FIELDS = ["systemInstruction", "tools", "cachedContent"] as const;

/** What an upstream says beside its images, in the words of its API. */
export interface VerbatimAnswer {
  api: VendorApi;
  /**
   * Fields of the answer, as JSON. In `candidates` of the native API, `{"image": 0}` stands for the `inlineData` of the first
   * image; `data` of OpenAI's has an object for each image, without its bytes.
   */
  fields: Readonly<Record<string, unknown>>;
}

/** The options that not every provider can pass on. */
export const PASSED_ON = ["quality", "background", "seed", "negativePrompt"] as const;

/** What a provider may be able to pass on to its model. */
export type Carried = (typeof PASSED_ON)[number] | "mask" | (typeof DECISIVE_FIELDS)[number];

/** Where an image is asked for: in a batch, in one that links a parent batch (as a retry does), or in real time. */
type RequestOrigin = "batch" | "child-batch" | "realtime";

export interface ReferenceImage {
  /** Reads the bytes when they are needed, so that waiting requests take no memory. */
  read(): Promise<Buffer>;
  /** Lends the bytes to short work. It must not keep them, because their memory is used again. */
  lend<T>(work: (bytes: Buffer) => Promise<T>): Promise<T>;
  mimeType: ImageMimeType;
}

/** An image on the disk, because it is large or one of many. It exists until `GeneratedImages.discard`. */
export interface LargeImage extends Pick<ReferenceImage, "read" | "lend"> {
  /** In bytes. */
  readonly length: number;
}

/**
 * The result of a request. It may hold no image (a refusal without an error) or several. After `readOutput` an image is a
 * `MadeImage`.
 */
export interface GeneratedImages<Image = Buffer | LargeImage> {
  images: readonly Image[];
  /** The image before it was finished, the roughest picture first. Nobody has looked into the bytes. Left out: none. */
  partials?: readonly (Buffer | LargeImage)[];
  /** Frees the memory and the disk that the images take. Must be called in the end. Left out: there is nothing to free. */
  discard?(): Promise<void>;
  /** The version that made the image; null when the upstream returned none. */
  modelVersion: string | null;
  /** The seed that made the image, when the upstream used or returned one. */
  seed?: number | null;
  /** The upstream's report about its costs. */
  usage?: UpstreamUsage | null;
  /** Differences that a person should know, such as a prompt that the upstream has rewritten. */
  notes?: readonly string[];
  /** Left out: the upstream speaks no vendor's API. */
  answer?: VerbatimAnswer;
}

/** What one request took: its costs and its time. Null where the upstream reports nothing. */
export interface UpstreamUsage {
  inputTokens: number | null;
  outputTokens: number | null;
  /** The bill: dollars that the upstream reports, else its tokens at the rates of the catalogue. Null: not known. */
  costMicroUsd: number | null;
  /** From the request to its answer. Measured by the worker; left out where nothing was measured. */
  tookMs?: number;
}

/** The abilities that some images need from a provider, besides the model. Each value comes once. */
export interface Needs {
  /** The most reference images of one of the images. */
  references: number;
  ratios: readonly AspectRatio[];
  sizes: readonly ImageSize[];
  /** What any of the images asks for besides. Default: nothing. */
  options?: readonly Carried[];
}

/** The abilities of an upstream. Admission and failover choose providers by it. */
export interface Capabilities {
  /** The most reference images of one request; 0: none. */
  maxReferences: number;
  /** Of more references it uses the first ones, with a note. It is asked for that when no other provider takes them all. */
  usesFirstReferences?: boolean;
  ratios: "any" | readonly AspectRatio[];
  tiers: "any" | readonly SizeTier[];
  /**
   * Returns the pixels that a model, by the id that the upstream knows, can be asked for. Left out: the upstream is asked for
   * tier and ratio, and decides the pixels itself.
   */
  pixelsOf?: (model: string) => PixelSizes | "any";
  /** The options that it passes on to its models. Left out: none. */
  options?: readonly Carried[];
  /** The vendor's API whose fields it passes on unchanged. Left out: it passes on none. */
  api?: VendorApi;
}

/** The system behind a provider that asks another program for its images. */
export interface UpstreamFacts {
  /** The provider type of the configuration. */
  type: string;
  /** Type and address. A provider with the same identity may continue the batches of one that is gone. */
  identity: string;
  /** A hash of the configuration and the credential. The health of a provider is forgotten when it changes. */
  fingerprint: string;
  /** Its images cost nothing. */
  isFree: boolean;
  /** It makes the image of a `repeatKey` once, however often it is asked. Left out: each request may be paid. */
  isRepeatable?: true;
  /** Its costs are no matter of the accounts of callers: it has a budget of its own. Left out: callers pay. */
  isPaidApart?: true;
  /** It stands for drawings, and may be asked for all that these may be asked for. */
  areDrawings?: true;
  takes: Capabilities;
  /** Why it cannot be used, such as a missing key; null when it can. */
  disabled: string | null;
  /** The uses of its entry. */
  uses: readonly ("batches" | "realtime")[];
  /**
   * Returns the model id to send for a requested model, or null when the provider does not serve it. `executed` is the
   * model that the requested one stands for in the configuration.
   */
  modelFor(requested: string, executed: string): string | null;
  /** Asks the upstream for something that costs nothing. Rejects with `ProviderError`. */
  probe(signal: AbortSignal): Promise<void>;
}

interface ProviderBase {
  /** The name in the configuration; shown to callers as the batch's `provider`. */
  readonly name: string;
  /** How many requests may run at once. */
  readonly concurrency: number;
  /** Whether this provider makes images for the executed model. */
  serves(model: string): boolean;
  /** Left out for drawings, which need no other program: they have no health and never take over from an upstream. */
  readonly upstream?: UpstreamFacts;
  /** Frees what the provider holds (threads, sockets). */
  close(): Promise<void>;
}

/** Makes one image per call. */
export interface ItemProvider extends ProviderBase {
  readonly kind: "item";
  /**
   * Rejects with `ProviderError`, or with the signal's reason when aborted. Calls `onSent` right before the request
   * leaves for the upstream: from then on it may be paid. May call `onAnswered` when a large answer has come whole, before
   * it is read: another request may be sent then. `bytes`: the size of the answer.
   */
  generate(
    request: ImageRequest,
    signal: AbortSignal,
    onSent?: () => void,
    onAnswered?: (bytes: number) => void,
  ): Promise<GeneratedImages>;
}

/** A request inside an upstream job. */
export interface JobItem {
  /** Unique within the job; comes back with the result. */
  key: string;
  request: ImageRequest;
}

/** `running` is every state that is not final. */
export type JobState = "running" | "succeeded" | "failed" | "cancelled" | "expired";

/** A job as its upstream shows it. */
export interface UpstreamJob {
  /** The upstream's own name of it. */
  name: string;
  /** The id with which it was created; null when it has none. Another program may have chosen it. */
  jobId: string | null;
  /** The upstream's name of its input; null when it shows none. */
  input: string | null;
  createdAtMs: number | null;
  state: JobState;
  /** The upstream's own word for the state, and its message. For people. */
  said: string;
  /**
   * Why the upstream ended the job before any of its requests ran: a limit, or money. Such a job costs nothing and can be
   * created again. Left out or null: it did not.
   */
  refusal?: ProviderError | null;
}

/**
 * The result of a job for one key, or a part of its results that cannot be read. `endsEarly`: a file of results ended
 * although the upstream says that it has more; reading it again may give the rest.
 */
export type JobResult =
  | ({ key: string } & ({ output: GeneratedImages } | { error: ProviderError }))
  | { unreadable: string }
  | { endsEarly: string };

/**
 * Hands many images at once to an upstream that works on them by itself. Each call can be repeated, except `create`:
 * each success of it is paid. All reject with `ProviderError`, or with the signal's reason when aborted.
 */
export interface JobProvider extends ProviderBase {
  readonly kind: "job";
  /** The most images and the most bytes of input of one job. */
  readonly limits: { images: number; bytes: number };
  /**
   * `pollMs`: the pause between two looks at a young job. `jobMs`: how long a job may take. `lostMs`: how long a job may
   * be missing in the upstream's list after it was created.
   */
  readonly times: { pollMs: number; jobMs: number; lostMs: number };
  /** Whether images with and without references need jobs of their own. */
  readonly splitsReferences: boolean;
  /** Returns how many bytes of input an item takes. */
  lineBytes(item: JobItem): Promise<number>;
  /** Uploads the input of a job and returns the upstream's name of it. Costs nothing. */
  upload(jobId: string, items: readonly JobItem[], signal: AbortSignal): Promise<string>;
  /** Resolves when the rate lets a job be created. `create` is called right after it. */
  waitForRate(signal: AbortSignal): Promise<void>;
  /** Creates a job that carries our id, and returns the upstream's own name of it. */
  create(
    job: { jobId: string; model: string; input: string; hasReferences: boolean },
    signal: AbortSignal,
  ): Promise<string>;
  /** The jobs of the credential, newest first. */
  list(signal: AbortSignal): AsyncIterable<UpstreamJob>;
  poll(name: string, signal: AbortSignal): Promise<UpstreamJob>;
  /**
   * Yields the results of an ended job that asked for `model`, in any order, one at a time, because they can be gigabytes. The bytes of an image
   * are valid until the next result is asked for.
   */
  results(name: string, model: string, signal: AbortSignal): AsyncIterable<JobResult>;
  /** Asks the upstream to stop a job. Rejects when the upstream refuses, as it may for a job that has ended. */
  cancel(name: string, signal: AbortSignal): Promise<void>;
  /** Deletes the uploaded input of a job. */
  discard(input: string, signal: AbortSignal): Promise<void>;
}

export type ImageProvider = ItemProvider | JobProvider;

/**
 * The meaning of a failure for the provider, and with it for the item.
 * - `credential`: the key is not accepted.
 * - `billing`: no money or no quota that waiting brings back.
 * - `forbidden`: not permitted, for another reason than the content.
 * - `no-model`: the upstream does not know the model.
 * - `limited`: too many requests for now.
 * - `unreachable`: no connection; nothing was sent.
 * - `failing`: the upstream reports that it failed; nothing was made.
 * - `ambiguous`: the request was sent, and no answer that can be read came back. The image may have been made and paid.
 */
export type Trouble =
  | "credential"
  | "billing"
  | "forbidden"
  | "no-model"
  | "limited"
  | "unreachable"
  | "failing"
  | "ambiguous";

/** Why a provider made no image. `retryable`: the same request may succeed later. */
export class ProviderError extends Error {
  readonly code: ItemErrorCode;
  readonly source: ItemError["source"];
  readonly retryable: boolean;
  /** The pause that the upstream asked for, in whole ms, a day at most; null when it asked for none. */
  readonly retryAfterMs: number | null;
  /** The HTTP status of the upstream; null when there was no response. */
  readonly upstreamStatus: number | null;
  /** The model version that refused or made nothing; null when the provider returned none. */
  readonly modelVersion: string | null;
  /** Null when the failure concerns the request alone: a refusal, an invalid request, a simulated error. */
  readonly trouble: Trouble | null;
  /** The trouble concerns the model that was asked, and not the whole credential: the upstream names the model. */
  readonly isOfModel: boolean;
  /** The upstream's own words, at most two lines without keys, where the message has ours. For the owner of the service alone. */
  readonly said: string | null;
  /** The field that the upstream names as the one at fault; null when it names none. */
  readonly param: string | null;
  /** The whole answer without an image; null when there was none that could be read. */
  readonly answer: VerbatimAnswer | null;
  /** The upstream's report about the costs of the failed request; null when there was none. */
  readonly usage: UpstreamUsage | null;

  constructor(
    code: ItemErrorCode,
    message: string,
    options: {
      source?: ItemError["source"];
      retryable?: boolean;
      retryAfterMs?: number | null;
      upstreamStatus?: number | null;
      modelVersion?: string | null;
      trouble?: Trouble | null;
      said?: string | null;
      isOfModel?: boolean;
      param?: string | null;
      answer?: VerbatimAnswer | null;
      usage?: UpstreamUsage | null;
      cause?: unknown;
    } = {},
  ) {
    super(message, { cause: options.cause });
    this.name = "ProviderError";
    this.code = code;
    this.source = options.source ?? "provider";
    this.trouble = options.trouble ?? null;
    this.said = options.said || null;
    this.isOfModel = options.isOfModel ?? false;
    this.param = options.param ?? null;
    this.answer = options.answer ?? null;
    this.usage = options.usage ?? null;
    const isTemporary = code === "PROVIDER_RATE_LIMITED" || code === "PROVIDER_TIMEOUT";
    this.retryable = options.retryable ?? (this.trouble !== null || isTemporary);
    const pauseMs = options.retryAfterMs ?? null;
    this.retryAfterMs = pauseMs === null ? null : Math.ceil(Math.min(pauseMs, LONGEST_PAUSE_MS));
    this.upstreamStatus = options.upstreamStatus ?? null;
    this.modelVersion = options.modelVersion ?? null;
  }
}
