import { ImgbatchError, TWO_LOST } from "../../contract/errors.ts";
import type { UnknownOutcome } from "../../contract/limits.ts";
import { type Clock, callAfter } from "../../kernel/clock.ts";
import { seedOf } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import { linkSignals, unlessAborted } from "../../kernel/signals.ts";
import { type CheckedContent, outputSeed } from "../checked-content.ts";
import type { Call } from "../health/calls.ts";
import { type ProviderHealth, WAITING_CODE_OF } from "../health/provider-health.ts";
import { waitingFor } from "../health/waiting.ts";
import { askInTurn, NOT_AGAIN, type Turn } from "../images/ask-in-turn.ts";
import { type MadeImage, readOutput } from "../images/output-images.ts";
import {
  identityOf,
  isDrawing,
  isPaid,
  type ModelEntry,
  mayBePaidTwice,
  type Offer,
  requestedPixels,
} from "../models.ts";
import type { ImageInspector } from "../ports/image-inspector.ts";
import {
  type GeneratedImages,
  type ImageRequest,
  type ItemProvider,
  ProviderError,
  type TaskMemory,
  type UpstreamUsage,
  type VerbatimAnswer,
} from "../ports/image-provider.ts";
import type { RealtimeHoldRecord, UpstreamTask, UsageRecord } from "../records.ts";
import { heartbeatLost } from "./holds.ts";

/** Returns the request to a provider for an image of the real-time request `id`. `index` counts its images from 0. */
function imageRequest(
  { id, index, model, content }: WantedImage,
  { provider, executedModel }: Pick<Offer, "provider" | "executedModel">,
): ImageRequest {
  const { prompt, earlier, images, mask, options, verbatim, partialImages } = content;
  const seed = outputSeed(options, index);
  return {
    model: executedModel,
    prompt,
    earlier,
    outputIndex: index,
    options: { ...options, seed },
    pixels: requestedPixels(provider, executedModel, options),
    references: images,
    ...(mask && { mask }),
    attempt: 1,
    seed: seed ?? seedOf(index === 0 ? id : `${id}/${index}`),
    defaultQuality: model.defaultQuality,
    ...(verbatim && { verbatim }),
    ...(partialImages && { partialImages }),
    origin: "realtime",
  };
}

/** How long to wait when an upstream takes no more and does not say for how long. */
const LIMITED_RETRY_MS = 5000;

/**
 * Returns the error of the real-time API for a failure of a provider. A refused prompt and a result without an image
 * are no errors and do not come here.
 */
function realtimeError(error: ProviderError): ImgbatchError {
  // What the service itself refuses has its error already: a recording has a budget of its own.
  if (error.source === "service" && error.cause instanceof ImgbatchError) return error.cause;
  const { message, retryAfterMs, trouble } = error;
  const because = trouble === null || trouble === "ambiguous" ? undefined : WAITING_CODE_OF[trouble];
  const details = { cause: error, retryAfterMs: retryAfterMs ?? undefined, because };
  switch (error.code) {
    case "INVALID_ARGUMENT":
      return refusal(error, details);
    case "PROVIDER_RATE_LIMITED":
      return new ImgbatchError("REALTIME_PROVIDER_LIMITED", message, {
        ...details,
        retryAfterMs: retryAfterMs ?? LIMITED_RETRY_MS,
      });
    case "PROVIDER_TIMEOUT":
      return new ImgbatchError("REALTIME_TIMEOUT", message, details);
    case "INVALID_IMAGE_OUTPUT":
      return new ImgbatchError("REALTIME_PROVIDER_FAILED", message, details);
    case "CANCELLED":
      return new ImgbatchError("REALTIME_CANCELLED", message, details);
    default:
      return failure(error, details);
  }
}

type RealtimeDetails = ConstructorParameters<typeof ImgbatchError>[2];

/** When an upstream refuses our own key or model, the caller is not at fault. */
function refusal({ upstreamStatus, message, param }: ProviderError, details: RealtimeDetails): ImgbatchError {
  if (upstreamStatus !== null && ![400, 413, 415, 422].includes(upstreamStatus)) {
    return new ImgbatchError("REALTIME_PROVIDER_UNREACHABLE", message, details);
  }
  return new ImgbatchError("REALTIME_INVALID_ARGUMENT", message, { ...details, param: param ?? undefined });
}

function failure(
  { upstreamStatus, message, retryable }: ProviderError,
  details: RealtimeDetails,
): ImgbatchError {
  if (upstreamStatus === 503) return new ImgbatchError("REALTIME_PROVIDER_OVERLOADED", message, details);
  if (upstreamStatus !== 500 && (upstreamStatus !== null || retryable)) {
    return new ImgbatchError("REALTIME_PROVIDER_UNREACHABLE", message, details);
  }
  return new ImgbatchError("REALTIME_PROVIDER_FAILED", message, details);
}

const SHORTEST_PAUSE_MS = 1000;
/** Requests for one image, to all providers together. */
const MOST_REQUESTS = 3;

export interface MakeImageDeps {
  clock: Clock;
  inspector: ImageInspector;
  log: Log;
  health: ProviderHealth;
  /** The longest time that a request may take; 0 sets no limit. */
  timeoutMs: number;
  /** Whether a paid request whose answer was lost may be sent once more. */
  unknownOutcome: UnknownOutcome;
  /**
   * The worker that owns the holds: other processes release them when it dies. `lost` is aborted once they have declared this
   * process dead; a new worker with a new signal follows. While `isFresh` is false, they may do so at any moment.
   */
  presence: { readonly id: string; readonly lost: AbortSignal; readonly isFresh: boolean };
}

/** One of the images that a request asks for. */
interface WantedImage {
  /** The model that was asked for. */
  model: ModelEntry;
  content: CheckedContent;
  /** The id of the request. */
  id: string;
  /** 0 for the first image of the request. */
  index: number;
  /** The cost of the image when it is made. */
  priceMicroUsd: number;
  attempts: Attempts;
}

/** `beforeSending` may abort the signal: then nothing is sent. */
type SentImage = WantedImage & { beforeSending(): void };

/** Brings what was made into the form that was asked for. */
export type Finish = (made: Made) => Promise<Made>;

/** What ends the making early. */
interface Ends {
  /** The caller has left; null when that does not matter. */
  gone: AbortSignal | null;
  stopping: AbortSignal;
  /** Aborted once other processes have declared this one dead. Ends each image that no upstream may have billed yet. */
  lost: AbortSignal;
}

/**
 * Makes images at the same time. Ends at the deadline and when the caller leaves, even when the provider goes on. Nothing is
 * sent that other processes may be about to send. Returns those that were made and finished. Throws the failure of the first
 * one when no image was made.
 */
export async function makeImages(
  deps: MakeImageDeps,
  offers: readonly Offer<ItemProvider>[],
  wanted: readonly WantedImage[],
  { gone, stopping, lost }: Ends,
  finish: Finish = async (made) => made,
): Promise<Made[]> {
  const { clock, timeoutMs, presence, log } = deps;
  const deadline = new AbortController();
  const late = () => deadline.abort(new ImgbatchError("REALTIME_TIMEOUT"));
  const limit = timeoutMs > 0 ? callAfter(clock, timeoutMs, late) : null;
  const makings = wanted.map(async (image) => {
    const unsent = new AbortController();
    const onLost = () => {
      if (!image.attempts.isPaid) unsent.abort(heartbeatLost());
    };
    if (lost.aborted) onLost();
    lost.addEventListener("abort", onLost, { once: true });
    const { signal, unlink } = linkSignals(...(gone ? [gone] : []), deadline.signal, stopping, unsent.signal);
    const beforeSending = () => presence.isFresh || unsent.abort(heartbeatLost());
    const made = await makeImage(deps, offers, { ...image, beforeSending }, signal).finally(() => {
      unlink();
      lost.removeEventListener("abort", onLost);
    });
    return finish(made).catch((error) => {
      const { id, index } = image;
      const facts = { id, index, error: String(error) };
      log.error("a made image could not be finished; it is not billed", facts);
      image.attempts.calls = unbilled(image.attempts.calls);
      throw error;
    });
  });
  const settled = await Promise.allSettled(makings);
  limit?.stop();
  const made = settled.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  const [first] = settled;
  if (first?.status === "rejected" && made.every(({ images }) => images.length === 0)) {
    const { reason } = first;
    const isInDoubt = wanted.some(({ attempts }) => attempts.isInDoubt) && reason instanceof ImgbatchError;
    throw isInDoubt ? new ImgbatchError(reason.code, reason.message, { ...reason, mayBePaid: true }) : reason;
  }
  return made;
}

export const unbilled = (calls: readonly Call[]) => calls.map((call) => ({ ...call, billedMicroUsd: 0 }));

/** The requests to providers for one image, as far as they are known. */
export interface Attempts {
  calls: Call[];
  /** The task that an upstream has begun for the image and has not ended; null without one. */
  task: UpstreamTask | null;
  /** Stores a task durably. */
  keep(task: UpstreamTask): Promise<void>;
  /**
   * Awaited before a provider is asked: the next start counts the call there if this process dies. Rejects with
   * `REALTIME_INSUFFICIENT_BALANCE` above the budget of the provider, which is then not asked.
   */
  beforeAsking(provider: ItemProvider): Promise<void>;
  /** The request to the provider that was asked last has left. */
  isSent: boolean;
  /** An upstream that makes an image for each request may have been paid for one. */
  isPaid: boolean;
  /** An upstream, also one that is free, was asked, and what it has made is not known or cannot be used. */
  isInDoubt: boolean;
  /** An earlier run may have been paid, too. */
  mayBePaidTwice: boolean;
}

/** The outcome of one wanted image: images, no image, or a refusal of the prompt. */
export interface Made {
  /** The name of the provider that made the images. */
  provider: string;
  /** The executed model. */
  executed: string;
  /** The version that the upstream returned; the executed model when it returned none. */
  modelVersion: string;
  images: readonly MadeImage<Buffer>[];
  /** As in `GeneratedImages`. */
  partials: readonly Buffer[];
  /** Why the upstream refused the prompt or the picture; null when it did not. `images` is empty then. */
  refusal: string | null;
  /** Why there is no image, in words; null when there are some. */
  failure: string | null;
  /** What the upstream said besides; null when it speaks no vendor's API. */
  answer: VerbatimAnswer | null;
  /** The tokens that the upstream counted; null when it counted none. */
  usage: UpstreamUsage | null;
  /** The images are drawings: no upstream counts their tokens. */
  isDrawn: boolean;
}

/**
 * Returns the decoded images of the first healthy provider. Asks another one only when the last one has made nothing for
 * sure.
 */
async function makeImage(
  deps: MakeImageDeps,
  offers: readonly Offer<ItemProvider>[],
  wanted: SentImage,
  signal: AbortSignal,
): Promise<Made> {
  const { id, attempts, priceMicroUsd } = wanted;
  const { task } = attempts;
  const able =
    task === null ? offers : offers.filter(({ provider }) => identityOf(provider) === task.upstream);
  let aboveBudget: ImgbatchError | null = null;
  let isLost = false;
  /**
   * The providers to ask, in their order. One whose answer was lost is asked again: `askInTurn` takes another turn only where
   * it makes an image once.
   */
  async function* turns(): AsyncGenerator<Turn> {
    let requests = 0;
    for (const offer of able) {
      do {
        const permit =
          requests === MOST_REQUESTS ? null : deps.health.begin(offer.provider, offer.executedModel);
        if (!permit) break;
        try {
          await attempts.beforeAsking(offer.provider);
        } catch (error) {
          permit.dropped();
          if (!(error instanceof ImgbatchError) || error.code !== "REALTIME_INSUFFICIENT_BALANCE")
            throw error;
          aboveBudget ??= error;
          break;
        }
        requests++;
        attempts.isSent = false;
        yield { offer, permit };
      } while (isLost);
    }
  }
  const asked = await askInTurn<Buffer>(deps, turns(), {
    id,
    signal,
    ask: ({ offer }) => ask(offer, wanted, signal),
    read: ({ offer }, output) => readIntoMemory(output, deps.inspector, offer.provider),
    isSent: () => attempts.isSent,
    hasTask: () => attempts.task !== null,
    onFailed: ({ turn, error, meaning }) => {
      if (meaning === "final") attempts.task = null;
      const mayBeMade = error.trouble === "ambiguous" || attempts.task !== null;
      attempts.isPaid &&= mayBeMade;
      attempts.isInDoubt &&= mayBeMade;
      attempts.calls.push({ ...callOf(turn.offer, wanted), usage: error.usage });
      isLost = meaning === "lost";
    },
  });
  if (asked === null) throw aboveBudget ?? allPause(deps, able);
  const { offer } = asked.turn;
  const { provider, executedModel: executed } = offer;
  if (asked.kind === "failed") {
    const { error, meaning } = asked;
    if (meaning === "lost" && mayBePaidTwice(provider))
      throw lostAnswer(deps, attempts, error) ?? realtimeError(error);
    return withoutImage(error, offer);
  }
  // The caller may have left while the image was decoded.
  if (asked.kind === "aborted" || signal.aborted) throw reasonToEnd(deps, offer, wanted, signal);
  attempts.task = null;
  attempts.isInDoubt = false;
  const { images, partials = [], modelVersion, answer = null, usage = null } = asked.made;
  const call = { images: images.length, isError: false, usage, billedMicroUsd: priceMicroUsd };
  attempts.calls.push({ ...callOf(offer, wanted), ...call });
  return {
    provider: provider.name,
    executed,
    modelVersion: modelVersion ?? executed,
    images,
    partials: partials.filter((each) => Buffer.isBuffer(each)),
    refusal: null,
    failure: null,
    answer,
    usage,
    isDrawn: isDrawing(provider),
  };
}

/** The error of a request whose answer was lost, for the reason that is given; null where it may be sent once more. */
function lostAnswer(
  { unknownOutcome }: Pick<MakeImageDeps, "unknownOutcome">,
  { mayBePaidTwice }: Attempts,
  why: { message: string },
): ImgbatchError | null {
  if (unknownOutcome === "once" && !mayBePaidTwice) return null;
  const message = mayBePaidTwice ? TWO_LOST : `${why.message.replace(/\.?$/, ".")} ${NOT_AGAIN}`;
  return new ImgbatchError("REALTIME_OUTCOME_UNKNOWN", message, { cause: why });
}

/** The error of a request that was ended before its answer came, and counts then: an upstream may have been paid. */
function reasonToEnd(
  deps: MakeImageDeps,
  offer: Offer<ItemProvider>,
  wanted: SentImage,
  { reason }: AbortSignal,
): unknown {
  const { attempts } = wanted;
  if (!attempts.isPaid || attempts.task !== null) return reason;
  attempts.calls.push(callOf(offer, wanted));
  if (!mayBePaidTwice(offer.provider)) return reason;
  const isLeft = reason instanceof ImgbatchError && reason.code === "REALTIME_CANCELLED";
  const why = { message: reason instanceof Error ? reason.message : String(reason) };
  return isLeft || deps.unknownOutcome === "once" ? reason : (lostAnswer(deps, attempts, why) ?? reason);
}

async function ask(
  offer: Offer<ItemProvider>,
  wanted: SentImage,
  signal: AbortSignal,
): Promise<GeneratedImages> {
  const { provider } = offer;
  const { attempts } = wanted;
  const onSent = () => {
    wanted.beforeSending();
    signal.throwIfAborted();
    attempts.isSent = true;
    attempts.isPaid = isPaid(provider);
    attempts.isInDoubt = !isDrawing(provider);
  };
  const image = { ...imageRequest(wanted, offer), task: taskOf(attempts, provider) };
  const work = provider.generate(image, signal, onSent);
  return unlessAborted(work, signal).catch((error) => {
    // Its caller has gone: what comes all the same is freed.
    void work.then(({ discard }) => discard?.()).catch(() => {});
    throw error;
  });
}

/** Real time answers with all images at once, so they must fit into the memory of an answer. */
const MAX_IN_MEMORY_BYTES = 64 * 2 ** 20;

/** Decodes what a provider made, and reads it into memory. Throws `ProviderError` when its images are too large together. */
async function readIntoMemory(
  output: GeneratedImages,
  inspector: ImageInspector,
  provider: ItemProvider,
): Promise<GeneratedImages<MadeImage<Buffer>>> {
  const made = await readOutput(output, inspector, provider);
  if (made.images.reduce((sum, { image }) => sum + image.length, 0) > MAX_IN_MEMORY_BYTES) {
    const message = "The images of one answer are more than 64 MiB together. A batch takes them.";
    throw new ProviderError("INVALID_IMAGE_OUTPUT", message);
  }
  const images = await Promise.all(
    made.images.map(async ({ image, facts }) => ({
      image: Buffer.isBuffer(image) ? image : await image.read(),
      facts,
    })),
  );
  const unfinished = made.partials ?? [];
  const partials = await Promise.all(unfinished.map((each) => (Buffer.isBuffer(each) ? each : each.read())));
  void output.discard?.().catch(() => {});
  return { ...made, images, partials };
}

function taskOf(attempts: Attempts, provider: ItemProvider): TaskMemory {
  const keep = async (task: string) => {
    const kept = { task, upstream: identityOf(provider) };
    await attempts.keep(kept);
    attempts.task = kept;
  };
  return { known: attempts.task?.task ?? null, keep };
}

/** The refusal of a request that found no provider, although the pause of one is over or just ending. */
const BACK_SOON = {
  code: undefined,
  message: "A provider is just being tried again after a pause. Send the request again.",
  untilMs: null,
};

function allPause({ health, clock }: MakeImageDeps, offers: readonly Offer<ItemProvider>[]): ImgbatchError {
  const blocks = offers.map(({ provider, executedModel }) => health.blockOf(provider, executedModel));
  const { message, untilMs, code } = waitingFor(blocks) ?? BACK_SOON;
  const retryAfterMs = Math.max(SHORTEST_PAUSE_MS, (untilMs ?? 0) - clock.nowMs());
  return new ImgbatchError("REALTIME_PROVIDER_PAUSES", message, { retryAfterMs, because: code });
}

/** Returns a refusal or an empty result; throws the API error of every other failure. */
function withoutImage(
  error: ProviderError,
  { provider, executedModel: executed }: Offer<ItemProvider>,
): Made {
  const modelVersion = error.modelVersion ?? executed;
  const { message: failure, answer } = error;
  const words = { failure, answer, usage: null, isDrawn: isDrawing(provider) };
  const nothing = { images: [], partials: [], modelVersion, executed, provider: provider.name, ...words };
  if (error.code === "SAFETY_BLOCKED") return { ...nothing, refusal: error.message };
  if (error.code === "EMPTY_IMAGE_OUTPUT") return { ...nothing, refusal: null };
  throw realtimeError(error);
}

function callOf({ provider }: Offer<ItemProvider>, { model, attempts }: WantedImage): Call {
  const isMaybePaidTwice = attempts.mayBePaidTwice && attempts.isPaid;
  const nothing = { images: 0, isError: true, isMaybePaidTwice, billedMicroUsd: 0, usage: null };
  return { provider: provider.name, model: model.id, ...nothing };
}

/** Returns one record for each image. The first of each wanted image is paid for; further ones are free. */
export function usageOf(
  hold: RealtimeHoldRecord,
  { model, content, priceMicroUsd }: Pick<WantedImage, "model" | "content" | "priceMicroUsd">,
  made: readonly Made[],
  nowMs: number,
): UsageRecord[] {
  const images = made.flatMap(({ images, executed, provider }) =>
    images.map((each, i) => ({ ...each, executed, provider, amountMicroUsd: i === 0 ? priceMicroUsd : 0 })),
  );
  return images.map(({ image, facts, executed, provider, amountMicroUsd }, imageIndex) => ({
    realtimeId: hold.id,
    imageIndex,
    apiKeyId: hold.apiKeyId,
    accountId: hold.accountId,
    model: model.id,
    executedModel: executed,
    provider,
    size: content.options.size,
    ratio: content.options.ratio,
    ...facts,
    sizeBytes: image.length,
    amountMicroUsd,
    createdAtMs: nowMs,
  }));
}
