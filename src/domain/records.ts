import type { ErrorCode } from "../contract/errors.ts";
import type { AspectRatio, ImageMimeType, ImageSize } from "../contract/image-formats.ts";
import type { BatchSource, BatchStatus, ItemError, ItemStatus } from "../contract/statuses.ts";
import type { Waiting } from "../contract/waiting.ts";
import type {
  ImageOptions,
  Needs,
  UpstreamUsage,
  VerbatimAnswer,
  VerbatimRequest,
} from "./ports/image-provider.ts";

/** Times are milliseconds since 1970; money is whole micro-dollars. */

export interface AccountRecord {
  id: string;
  name: string;
  /** The amount that can be spent now, without the holds. Always the sum of the ledger's balance changes. */
  balanceMicroUsd: number;
  /** The sum of the open holds: of batches that are not settled, and of real-time requests at work. */
  heldMicroUsd: number;
  createdAtMs: number;
  /** Whether its money is play money, which buys drawings only. */
  isPlay: boolean;
  /** The account that pays for images of upstreams in the place of this one; null until it is needed. */
  realAccountId: string | null;
}

export interface ApiKeyRecord {
  id: string;
  name: string;
  /** The first characters, by which people recognise the key. The key itself is not stored. */
  prefix: string;
  accountId: string;
  group: string;
  createdAtMs: number;
  expiresAtMs: number | null;
  disabledAtMs: number | null;
  /** When it was enabled again after it was disabled; null when it never was. */
  enabledAtMs: number | null;
}

/** How much real money may be spent in a day or a month of UTC. */
export interface BudgetRecord {
  /** `data`: all accounts together. `account`: each account. Else `upstream:` and the name of a provider. */
  scope: string;
  limitMicroUsd: number;
  per: "day" | "month";
}

/** The real money of one provider, of one run (the name of its batches; null in real time) and one account. */
export interface SpentRecord {
  accountId: string;
  /** Empty when the provider is not known. */
  provider: string;
  run: string | null;
  microUsd: number;
}

/** A movement of money. Entries are only ever added. */
export interface LedgerEntry {
  seq: number;
  /** Names the step that caused the entry; unique, so that repeating the step changes nothing. */
  requestId: string;
  accountId: string;
  batchId: string | null;
  kind: "top_up" | "hold" | "capture" | "release" | "charge" | "grant" | "take_back";
  /** Never negative. */
  amountMicroUsd: number;
  /** The change of the balance: a hold lowers it, a release and a top-up raise it, a capture leaves it. */
  balanceChangeMicroUsd: number;
  /** The change of the held amount. */
  heldChangeMicroUsd: number;
  createdAtMs: number;
}

/** The prices of a batch, fixed when it is created. */
interface PriceSnapshot {
  /** The price of one successful image. */
  imageMicroUsd: number;
  /** The hold for one image until the batch is settled; never below `imageMicroUsd`. */
  holdMicroUsd: number;
  /** Set when no real money pays for the images, because they are drawn. */
  isPlay?: true;
  /** Set when no image costs the operator anything: they are drawn, or their upstream is free. */
  isFree?: true;
  /** The numbers that both amounts were computed from, kept to explain them. */
  basis: {
    modelPriceUsd: number;
    groupMultiplier: number;
    providerMultiplier: number;
    batchDiscount: number;
    holdMultiplier: number;
  };
}

export interface BatchError {
  code: string;
  message: string;
  source: "provider" | "service";
}

/** The lines that the items of a batch are read from, after it was accepted. */
interface BatchInput {
  /** The caller's name of the file; null when the lines came with the request. */
  fileName: string | null;
  blobKey: string;
  /** The most that the person at this machine agreed to pay, in micro-dollars; null when the account pays. */
  consentMicroUsd: number | null;
  /** How long the results are kept at most after the end, in ms. Left out: as long as others. */
  resultsKeptMs?: number;
  /** The facts that the API which made the batch keeps for itself, as JSON. */
  origin?: Readonly<Record<string, unknown>>;
}

/**
 * Who works on a batch that has not ended.
 *
 * - `always`: a service that stays, from one start to the next.
 * - `while-named`: the service inside a command, while a command names the batch.
 * - `no`: nobody, until somebody names the batch.
 */
export type GoesOn = "always" | "while-named" | "no";

export interface BatchRecord {
  id: string;
  apiKeyId: string;
  accountId: string;
  taskName: string;
  status: BatchStatus;
  model: string;
  mimeType: ImageMimeType;
  parentBatchId: string | null;
  metadata: Record<string, string> | null;
  provider: string;
  itemCount: number;
  successCount: number;
  failCount: number;
  price: PriceSnapshot;
  estimatedMicroUsd: number;
  holdMicroUsd: number;
  actualMicroUsd: number | null;
  createdAtMs: number;
  submittedAtMs: number;
  /** When a terminal status was reached. */
  endedAtMs: number | null;
  settledAtMs: number | null;
  downloadedAtMs: number | null;
  outputDeletedAtMs: number | null;
  /** When retention may delete the outputs; null while the batch works, or when they are kept. */
  outputsExpireAtMs: number | null;
  recordDeletedAtMs: number | null;
  /** When the files were removed, which is after the status changed to `output_deleted`. */
  outputsPurgedAtMs: number | null;
  inputsPurgedAtMs: number | null;
  error: BatchError | null;
  /** The identity of the upstream that it was priced with; `procedural` for drawings. */
  upstream: string;
  /** What a provider must be able to do that makes any of its items. Nothing, while they are still to be read from an input. */
  needs: Needs;
  /** Since when no item could be made, because of the upstream; null while it is well. */
  waitingSinceMs: number | null;
  /** Why, as it was found last; of no meaning while it is well. */
  waiting: Waiting | null;
  source: BatchSource;
  goesOn: GoesOn;
  /** When it was first to be cancelled. From then on nothing is begun for it, and what was sent is awaited. Null before. */
  cancelAskedAtMs: number | null;
  /** Null when the request for the batch had its items. */
  input: BatchInput | null;
  /** When the items were read from the input and the money was put on hold; null before, and without an input. */
  inputReadAtMs: number | null;
}

/** One line of a batch's history. `from` is null for its creation. */
export interface BatchEvent {
  batchId: string;
  from: BatchStatus | null;
  to: BatchStatus;
  atMs: number;
}

export interface ItemRecord {
  id: number;
  batchId: string;
  /** From 0, in request order after expansion. */
  position: number;
  /** Which item of the request this came from, from 0: several outputs of one prompt share it. */
  sourceIndex: number;
  /** Which output of its prompt, from 0. */
  outputIndex: number;
  customId: string;
  prompt: string;
  options: ImageOptions;
  /** The user's texts before the prompt, the newest last. Empty without any. */
  earlier: string;
  /** As in `ImageRequest`. */
  verbatim: VerbatimRequest | null;
  /** The price of the image, and the hold for it. */
  priceMicroUsd: number;
  holdMicroUsd: number;
  /** The name that the client gave to the line, as JSON. It comes back with the result, and may repeat. */
  clientKey: string | null;
  status: ItemStatus;
  /** Tries that failed and may be repeated. */
  attempts: number;
  leaseToken: string | null;
  mimeType: ImageMimeType | null;
  imageCount: number;
  error: ItemError | null;
  finishedAtMs: number | null;
  /** The model version that made or refused the image; null when the provider returned none. */
  modelVersion: string | null;
  /** The provider that was asked last; null before the first request. */
  provider: string | null;
  /** A provider at which the last try failed. Another one is asked next, when one is well. */
  failedAt: string | null;
  /** How often another provider was asked than the time before. */
  switches: number;
  /** Whether a request was sent that may be paid although nothing came back, and whether another was sent after it. */
  maybePaid: MaybePaid;
  /** The seed that made the image, when the upstream used or returned one. */
  seed: number | null;
  /** Differences that a person should know. */
  notes: readonly string[];
  usage: UpstreamUsage | null;
  /** What the upstream said beside the images, or instead of them. */
  answer: VerbatimAnswer | null;
  /** The job upstream that it belongs to; null while it belongs to none. */
  jobId: string | null;
  /** What an upstream that answers with tasks calls its work on the item, and which upstream; null while there is none. */
  task: string | null;
  taskUpstream: string | null;
}

/** An item that a worker holds a lease on. */
export type LeasedItem = ItemRecord & { leaseToken: string };

/** `once`: a sent request has no known outcome. `twice`: another one was sent after it. */
export type MaybePaid = "no" | "once" | "twice";

/** The sums of the requests to one provider for one model in a stretch of time. */
export interface ProviderCalls {
  provider: string;
  /** The requested model. */
  model: string;
  requests: number;
  images: number;
  errors: number;
  /** Requests without a known outcome, after which another was sent. */
  maybePaidTwice: number;
  /** The price of the images for callers. */
  billedMicroUsd: number;
  /** The bill of the upstream as far as it is known: see `UpstreamUsage`. */
  costMicroUsd: number;
  /** The list price of the images whose bill is not known. */
  unreportedMicroUsd: number;
  inputTokens: number;
  outputTokens: number;
  /** When the last image came; null when none has come. */
  lastSuccessMs: number | null;
}

/** One stored image of a successful item. */
export interface OutputRecord {
  itemId: number;
  batchId: string;
  imageIndex: number;
  blobKey: string;
  sizeBytes: number;
  sha256: string;
  crc32: number;
  mimeType: ImageMimeType;
  widthPx: number;
  heightPx: number;
  /** The image's name in the ZIP; null until results are processed. */
  entryName: string | null;
}

/** The `ordinal` of an item's mask, which is no reference. */
export const MASK_ORDINAL = -1;

export interface ReferenceRecord {
  /** From 0, or `MASK_ORDINAL`. */
  ordinal: number;
  referenceId: string | null;
  type: string | null;
  mimeType: ImageMimeType;
  blobKey: string;
  sha256: string;
}

export type NewReference = ReferenceRecord & { sourceIndex: number };

export interface IdempotencyRecord {
  apiKeyId: string;
  key: string;
  /** SHA-256 of the request that made the batch, after normalisation; or what else its API has to know of it. */
  requestHash: string;
  batchId: string;
  createdAtMs: number;
}

/** Where the clock was when retention last looked at it, and how much of it is believed. Kept over restarts. */
export interface RetentionTime {
  /** The wall clock at the last check. */
  seenMs: number;
  /** Nothing is deleted by time until then, because the clock may be wrong; 0: it never jumped. */
  pausedUntilMs: number;
  /** When `imgbatch serve` last began on the data; 0: never. Its configuration decides what is deleted, not that of commands. */
  servedMs: number;
}

/** The hold of a real-time request at work. The record is removed when the hold ends. */
export interface RealtimeHoldRecord {
  /** The request; also the `responseId` of its answer. */
  id: string;
  apiKeyId: string;
  accountId: string;
  amountMicroUsd: number;
  createdAtMs: number;
  /** The process that answers the request. When it is dead, the others end the hold. */
  worker: string;
  /**
   * The call of each image, by the index of the image. When the process is dead, the call is counted, unless the task of the
   * image is known. While the hold is open, the budget of the call's provider counts the amount. An image that costs nothing
   * has no call. Null or left out: no image has a call.
   */
  lostCalls?: Record<number, LostCall> | null | undefined;
}

/** A call to an upstream whose answer nobody has. */
export interface LostCall {
  provider: string;
  model: string;
  isMaybePaidTwice: boolean;
  /** The part of the hold that is for this image, in micro-dollars. */
  heldMicroUsd: number;
}

/** Returns the amounts that a real-time request holds: one for each call, and the rest of the hold under no provider (""). */
export function heldForImages({
  amountMicroUsd,
  lostCalls,
}: Pick<RealtimeHoldRecord, "amountMicroUsd" | "lostCalls">): Pick<SpentRecord, "provider" | "microUsd">[] {
  const ofImages = Object.values(lostCalls ?? {}).map(({ provider, heldMicroUsd: microUsd }) => ({
    provider,
    microUsd,
  }));
  const rest = ofImages.reduce((left, { microUsd }) => left - microUsd, amountMicroUsd);
  return [...ofImages, { provider: "", microUsd: rest }];
}

/** An image that was made in real time and can be fetched by its name for some time, without a key. */
export interface LinkedImageRecord {
  /** SHA-256 of the name, as lower-case hexadecimal digits: whoever reads the database learns no name. */
  id: string;
  mimeType: ImageMimeType;
  sizeBytes: number;
  expiresAtMs: number;
}

/**
 * A request of a conversation with its answer, which its key may get, continue and delete for some time: a response of
 * OpenAI's API, an interaction of Google's.
 */
export interface InteractionRecord {
  /** Begins as the ids of its API do, such as `resp_`. */
  id: string;
  apiKeyId: string;
  /** The API that it was made by. No other API shows it. */
  api: VerbatimAnswer["api"];
  status: "in_progress" | "completed" | "failed" | "cancelled";
  /** The interaction that it continues; null at the beginning of a conversation. */
  previousId: string | null;
  /** What interactions that continue it need, as its API writes it. The key of a blob stands for the Base64 of that image. */
  input: Readonly<Record<string, unknown>>;
  /** The body of the answer, with keys of blobs in the same way. While it is in progress: what is known so far. */
  answer: Readonly<Record<string, unknown>>;
  pictures: readonly InteractionPicture[];
  /** The process that works on it; null when it has ended. */
  worker: string | null;
  createdAtMs: number;
  expiresAtMs: number;
}

/** An image of an interaction, in the blob store. */
export interface InteractionPicture {
  blobKey: string;
  mimeType: ImageMimeType;
  sizeBytes: number;
  sha256: string;
  /** Sent by the caller, or made for the answer. */
  from: "input" | "answer";
}

/** One image that was made in real time, and its price. */
export interface UsageRecord {
  /** The request that made it. */
  realtimeId: string;
  /** From 0. The price of an image that came beside another one is 0. */
  imageIndex: number;
  apiKeyId: string;
  accountId: string;
  /** The model that was asked for, which decides the price, and the one that ran. */
  model: string;
  executedModel: string;
  provider: string;
  size: ImageSize;
  ratio: AspectRatio;
  mimeType: ImageMimeType;
  widthPx: number;
  heightPx: number;
  sizeBytes: number;
  amountMicroUsd: number;
  createdAtMs: number;
}

/** The work of an upstream on one image. It is asked for, and never begun again. */
export interface UpstreamTask {
  /** The identity of the upstream: type and address. */
  upstream: string;
  /** What the upstream calls it. */
  task: string;
}

/** A real-time request with an idempotency key. */
export interface KeyedRequestRecord {
  apiKeyId: string;
  /** The key of the caller. */
  key: string;
  /** SHA-256 over everything that was asked for, in lower-case hexadecimal. */
  fingerprint: string;
  /** The last run: the id of its hold. */
  realtimeId: string;
  /** How many runs an upstream may have been paid for. */
  paidRuns: number;
  /** The tasks that upstreams have begun for the images of its runs, by the index of the image. */
  tasks: Readonly<Record<string, UpstreamTask>>;
  /**
   * The body of a success, whose bytes are a blob, with the bills of upstreams where they are known; or an error that is
   * final. Null until a run has finished.
   */
  answer:
    | { sha256: string; upstreamMicroUsd?: number }
    | { error: { code: ErrorCode; message: string; mayBePaid?: boolean } }
    | null;
  /** Then the sweep may remove the record. */
  expiresAtMs: number;
}
