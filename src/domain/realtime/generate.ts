import { ImgbatchError } from "../../contract/errors.ts";
import { imageSizePx } from "../../contract/images/image-sizes.ts";
import type { Clock } from "../../kernel/clock.ts";
import { type Ids, seedOf } from "../../kernel/ids.ts";
import { linkSignals } from "../../kernel/linked-signal.ts";
import type { Log } from "../../kernel/log.ts";
import type { Caller } from "../batches/create-batch.ts";
import { priceRealtimeImage } from "../billing/pricing.ts";
import { type MadeImage, readOutput } from "../images/output-images.ts";
import type { Offer } from "../offers.ts";
import type { ImageInspector } from "../ports/image-inspector.ts";
import { type ImageRequest, type ItemProvider, ProviderError } from "../ports/image-provider.ts";
import type { Stores } from "../ports/stores.ts";
import type { RealtimeHoldRecord, UsageRecord } from "../records.ts";
import type { CheckedContent } from "./checked-content.ts";
import { endHold, openHold } from "./holds.ts";
import { realtimeError } from "./provider-errors.ts";

const TROUBLE_DELAY_MS = 1000;

export interface RealtimeDeps {
  stores: Stores;
  clock: Clock;
  ids: Ids;
  inspector: ImageInspector;
  log: Log;
  /** Null when no provider makes images for the requested model. */
  offer(modelId: string): Offer<ItemProvider> | null;
  /** The longest time that a request may take; 0 sets no limit. */
  timeoutMs: number;
}

/** The outcome of a request: images, no image, or a refusal of the prompt. */
export interface GeneratedContent {
  id: string;
  request: CheckedContent;
  /** The executed model. */
  executed: string;
  /** The version that the upstream returned; the executed model when it returned none. */
  modelVersion: string;
  images: readonly MadeImage[];
  /** Set when the prompt was refused; `images` is empty then. */
  refusal: string | null;
}

/**
 * Makes images while the caller waits. Money is held before the work. With an image the hold is captured together
 * with the usage record; without one it is released.
 */
export class Realtime {
  readonly #deps: RealtimeDeps;
  readonly #running = new Set<Promise<unknown>>();
  readonly #stopping = new AbortController();

  constructor(deps: RealtimeDeps) {
    this.#deps = deps;
  }

  /**
   * Rejects with an `ImgbatchError`, with `StorageUnavailable`, or with the reason of `gone` when the caller has left.
   */
  generate(caller: Caller, request: CheckedContent, gone: AbortSignal): Promise<GeneratedContent> {
    const work = this.#generate(caller, request, gone);
    this.#track(work);
    return work;
  }

  /** Ends running and later requests with `REALTIME_STOPPING`, and releases their holds. */
  async stop(): Promise<void> {
    this.#stopping.abort(new ImgbatchError("REALTIME_STOPPING"));
    // A request that ends adds the release of its hold to the running work.
    while (this.#running.size > 0) await Promise.allSettled([...this.#running]);
  }

  async #generate(caller: Caller, request: CheckedContent, gone: AbortSignal): Promise<GeneratedContent> {
    gone.throwIfAborted();
    this.#stopping.signal.throwIfAborted();
    const { stores, clock, ids } = this.#deps;
    const offer = this.#deps.offer(request.model.id);
    if (!offer) throw new ImgbatchError("REALTIME_NO_PROVIDER");
    const executed = offer.executedModel;
    const price = priceRealtimeImage(request.model, request.size, caller.group, offer.rateMultiplier);
    if (price === null) throw new Error(`${request.model.id} has no price at ${request.size}`);
    const hold: RealtimeHoldRecord = {
      id: ids.recordId("gen"),
      apiKeyId: caller.key.id,
      accountId: caller.key.accountId,
      amountMicroUsd: price,
      createdAtMs: clock.nowMs(),
    };
    await openHold(stores, hold);
    try {
      const made = await this.#make(offer.provider, imageRequest(request, executed, hold.id), gone);
      const usage = usageOf(
        hold,
        { ...made, request, executed, provider: offer.provider.name },
        clock.nowMs(),
      );
      await endHold(stores, hold.id, usage, clock.nowMs());
      return { id: hold.id, request, executed, ...made };
    } catch (error) {
      this.#track(this.#release(hold.id));
      throw error;
    }
  }

  /** Returns the decoded images. Ends at the deadline and when the caller leaves, even when the provider goes on. */
  async #make(provider: ItemProvider, request: ImageRequest, gone: AbortSignal) {
    const { clock, inspector, timeoutMs } = this.#deps;
    const deadline = new AbortController();
    const done = new AbortController();
    if (timeoutMs > 0) {
      const late = () => deadline.abort(new ImgbatchError("REALTIME_TIMEOUT"));
      clock.sleep(timeoutMs, done.signal).then(late, () => {});
    }
    const { signal, unlink } = linkSignals(gone, deadline.signal, this.#stopping.signal);
    try {
      const work = provider.generate(request, signal);
      const output = await unlessAborted(work, signal);
      const images = await readOutput(output.images, inspector);
      signal.throwIfAborted();
      return { images, modelVersion: output.modelVersion ?? request.model, refusal: null };
    } catch (error) {
      signal.throwIfAborted();
      return this.#withoutImage(error, request.model);
    } finally {
      done.abort();
      unlink();
    }
  }

  /** Returns a refusal or an empty result; throws the API error of every other failure. */
  #withoutImage(error: unknown, executed: string) {
    if (error instanceof ProviderError) {
      const nothing = { images: [], modelVersion: error.modelVersion ?? executed };
      if (error.code === "SAFETY_BLOCKED") return { ...nothing, refusal: error.message };
      if (error.code === "EMPTY_IMAGE_OUTPUT") return { ...nothing, refusal: null };
      throw realtimeError(error);
    }
    this.#deps.log.error("provider failed unexpectedly", { error: String(error) });
    throw new ImgbatchError("REALTIME_PROVIDER_FAILED", undefined, { cause: error });
  }

  /** Tries again after a failure of the storage, because money must not stay held. The next start releases it otherwise. */
  async #release(id: string): Promise<void> {
    const { stores, clock, log } = this.#deps;
    for (;;) {
      try {
        return await endHold(stores, id, [], clock.nowMs());
      } catch (error) {
        log.error("a hold could not be released; trying again", { id, error: String(error) });
        if (this.#stopping.signal.aborted) return;
        await clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).catch(() => {});
      }
    }
  }

  #track(work: Promise<unknown>): void {
    const tracked = work.catch(() => {}).finally(() => this.#running.delete(tracked));
    this.#running.add(tracked);
  }
}

function imageRequest(request: CheckedContent, executed: string, id: string): ImageRequest {
  const { prompt, earlier, size, ratio, mimeType, images } = request;
  return {
    model: executed,
    prompt,
    earlier,
    outputIndex: 0,
    tier: size,
    ratio,
    size: imageSizePx(size, ratio),
    mimeType,
    references: images,
    storedReferences: [],
    attempt: 1,
    seed: seedOf(id),
    origin: "realtime",
  };
}

/** Returns one record for each image. The first is paid for; further images are free. */
function usageOf(
  hold: RealtimeHoldRecord,
  facts: { images: readonly MadeImage[]; request: CheckedContent; executed: string; provider: string },
  nowMs: number,
): UsageRecord[] {
  const { request, executed, provider } = facts;
  return facts.images.map((image, imageIndex) => ({
    realtimeId: hold.id,
    imageIndex,
    apiKeyId: hold.apiKeyId,
    accountId: hold.accountId,
    model: request.model.id,
    executedModel: executed,
    provider,
    size: request.size,
    ratio: request.ratio,
    ...image.facts,
    sizeBytes: image.bytes.length,
    amountMicroUsd: imageIndex === 0 ? hold.amountMicroUsd : 0,
    createdAtMs: nowMs,
  }));
}

/** Settles as the work does, or rejects with the signal's reason as soon as it is aborted. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
