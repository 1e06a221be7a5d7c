import { ERRORS, ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Ids } from "../../kernel/ids.ts";
import { linkSignals } from "../../kernel/linked-signal.ts";
import type { Log } from "../../kernel/log.ts";
import { unlessAborted } from "../../kernel/unless-aborted.ts";
import type { Caller } from "../batches/create-batch.ts";
import { payerOf } from "../billing/payer.ts";
import { priceRealtimeImage } from "../billing/pricing.ts";
import type { ProviderHealth } from "../health/provider-health.ts";
import type { Call } from "../health/record-call.ts";
import { waitingFor } from "../health/waiting.ts";
import { type MadeImage, readOutput } from "../images/output-images.ts";
import { isPaid, type Offer, type Offers } from "../offers.ts";
import type { ImageInspector } from "../ports/image-inspector.ts";
import { type ItemProvider, ProviderError } from "../ports/image-provider.ts";
import type { RealtimeHoldRecord } from "../ports/realtime-records.ts";
import type { Stores } from "../ports/stores.ts";
import type { CheckedContent } from "./checked-content.ts";
import { endHold, openHold } from "./holds.ts";
import { imageRequest } from "./image-request.ts";
import { realtimeError } from "./provider-errors.ts";
import { NOT_RECORDED, type RequestRecord } from "./request-record.ts";
import { usageOf } from "./usage-records.ts";

const TROUBLE_DELAY_MS = 1000;
const SHORTEST_PAUSE_MS = 1000;
/** A request goes to so many other providers. */
const MOST_SWITCHES = 2;

export interface RealtimeDeps {
  stores: Stores;
  clock: Clock;
  ids: Ids;
  inspector: ImageInspector;
  log: Log;
  /** Those of the providers that are used for real time. */
  offers: Offers<ItemProvider>;
  health: ProviderHealth;
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

type Made = Omit<GeneratedContent, "id" | "request"> & {
  /** The name of the provider that made the images. */
  provider: string;
};

/** What is known of the requests to providers. */
interface Trail {
  calls: Call[];
  /** An upstream may have been paid for an image. */
  isPaid: boolean;
  /** An earlier run may have been paid, too. */
  mayBePaidTwice: boolean;
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
   * Rejects with an `ImgbatchError`, with `StorageUnavailable`, or with the reason of `gone` when the caller has left; null:
   * nobody's leaving ends the request.
   */
  generate(
    caller: Caller,
    request: CheckedContent,
    gone: AbortSignal | null,
    record: RequestRecord<GeneratedContent> = NOT_RECORDED,
  ): Promise<GeneratedContent> {
    const work = this.#generate(caller, request, gone, record);
    this.#track(work);
    return work;
  }

  /**
   * Gives running requests `graceMs` (default 0). Then it ends them and later ones with `REALTIME_STOPPING`, and releases
   * their holds.
   */
  async stop(graceMs = 0): Promise<void> {
    if (graceMs > 0 && this.#running.size > 0) {
      const done = new AbortController();
      const ended = Promise.allSettled([...this.#running]).finally(() => done.abort());
      await Promise.race([ended, this.#deps.clock.sleep(graceMs, done.signal).catch(() => {})]);
    }
    this.#stopping.abort(new ImgbatchError("REALTIME_STOPPING"));
    // A request that ends adds the release of its hold to the running work.
    while (this.#running.size > 0) await Promise.allSettled([...this.#running]);
  }

  async #generate(
    caller: Caller,
    request: CheckedContent,
    gone: AbortSignal | null,
    record: RequestRecord<GeneratedContent>,
  ): Promise<GeneratedContent> {
    gone?.throwIfAborted();
    this.#stopping.signal.throwIfAborted();
    const { stores, clock, ids } = this.#deps;
    const { model, size: tier, ratio, images } = request;
    const needs = { references: images.length, ratios: [ratio], tiers: [tier] };
    const offers = this.#deps.offers.all(model.id, needs);
    const first = offers[0];
    if (!first) throw new ImgbatchError("REALTIME_NO_PROVIDER");
    const payer = await payerOf(this.#deps, caller, first);
    const price = priceRealtimeImage(model, tier, caller.group, payer.rateMultiplier);
    if (price === null) throw new Error(`${model.id} has no price at ${tier}`);
    const hold: RealtimeHoldRecord = {
      id: ids.recordId("gen"),
      apiKeyId: caller.key.id,
      accountId: payer.account.id,
      amountMicroUsd: price,
      createdAtMs: clock.nowMs(),
    };
    const opening = { realtimeId: hold.id, isPaid: offers.some(({ provider }) => isPaid(provider)) };
    await openHold(stores, hold, payer, (tx) => record.opened(tx, opening));
    const trail: Trail = { calls: [], isPaid: false, mayBePaidTwice: record.mayBePaidTwice };
    try {
      const made = await this.#makeInTime(offers, request, hold, gone, trail);
      const content = { id: hold.id, request, ...made };
      await record.keep(content);
      const usage = usageOf(hold, content, clock.nowMs());
      await endHold(stores, hold.id, usage, trail.calls, clock.nowMs(), (tx) => record.finished(tx));
      return content;
    } catch (error) {
      if (trail.isPaid) record.lost();
      this.#track(this.#release(hold.id, trail.calls));
      throw error;
    }
  }

  /** Ends at the deadline and when the caller leaves, even when the provider goes on. */
  async #makeInTime(
    offers: readonly Offer<ItemProvider>[],
    request: CheckedContent,
    hold: RealtimeHoldRecord,
    gone: AbortSignal | null,
    trail: Trail,
  ): Promise<Made> {
    const { clock, timeoutMs } = this.#deps;
    const deadline = new AbortController();
    const done = new AbortController();
    if (timeoutMs > 0) {
      const late = () => deadline.abort(new ImgbatchError("REALTIME_TIMEOUT"));
      clock.sleep(timeoutMs, done.signal).then(late, () => {});
    }
    const { signal, unlink } = linkSignals(...(gone ? [gone] : []), deadline.signal, this.#stopping.signal);
    try {
      return await this.#make(offers, request, hold, signal, trail);
    } finally {
      done.abort();
      unlink();
    }
  }

  /**
   * Returns the decoded images of the first provider that is well. Asks another one only when the last one has made
   * nothing for sure.
   */
  async #make(
    offers: readonly Offer<ItemProvider>[],
    request: CheckedContent,
    hold: RealtimeHoldRecord,
    signal: AbortSignal,
    trail: Trail,
  ): Promise<Made> {
    const { calls } = trail;
    let failure: unknown = null;
    let asked = 0;
    for (const offer of offers) {
      const ticket =
        asked > MOST_SWITCHES ? null : this.#deps.health.begin(offer.provider, offer.executedModel);
      if (!ticket) continue;
      asked++;
      try {
        const onSent = () => {
          trail.isPaid = isPaid(offer.provider);
        };
        const output = await this.#ask(offer, request, hold.id, signal, onSent);
        await ticket.succeeded();
        const billed = { billedMicroUsd: hold.amountMicroUsd };
        calls.push({ ...callOf(offer, request, trail), ...output.call, ...billed });
        return output.made;
      } catch (error) {
        if (signal.aborted) ticket.dropped();
        signal.throwIfAborted();
        const known = this.#knownError(error, offer.provider);
        await ticket.failed(known, hold.id);
        trail.isPaid &&= known.trouble === "ambiguous";
        calls.push(callOf(offer, request, trail));
        const isNothingMade = known.trouble !== null && known.trouble !== "ambiguous";
        if (!isNothingMade) return this.#withoutImage(known, offer);
        failure ??= known;
      }
    }
    if (failure instanceof ProviderError) throw realtimeError(failure);
    throw this.#allPause(offers);
  }

  async #ask(
    offer: Offer<ItemProvider>,
    request: CheckedContent,
    id: string,
    signal: AbortSignal,
    onSent: () => void,
  ) {
    const { provider, executedModel } = offer;
    const work = provider.generate(imageRequest(request, executedModel, id), signal, onSent);
    const output = await unlessAborted(work, signal);
    const images = await readOutput(output, this.#deps.inspector, provider);
    signal.throwIfAborted();
    const modelVersion = output.modelVersion ?? executedModel;
    const made = { images, modelVersion, refusal: null, executed: executedModel, provider: provider.name };
    return { made, call: { images: images.length, isError: false, usage: output.usage ?? null } };
  }

  #knownError(error: unknown, { upstream }: ItemProvider): ProviderError {
    if (error instanceof ProviderError) return error;
    this.#deps.log.error("provider failed unexpectedly", { error: String(error) });
    return new ProviderError("PROVIDER_ITEM_FAILED", ERRORS.REALTIME_PROVIDER_FAILED.message, {
      cause: error,
      trouble: upstream ? "ambiguous" : null,
      upstreamStatus: 500,
    });
  }

  #allPause(offers: readonly Offer<ItemProvider>[]): ImgbatchError {
    const { health, clock } = this.#deps;
    const waiting = waitingFor(
      offers.flatMap(({ provider, executedModel }) => health.blockOf(provider, executedModel) ?? []),
    );
    const retryAfterMs = Math.max(SHORTEST_PAUSE_MS, (waiting.untilMs ?? 0) - clock.nowMs());
    return new ImgbatchError("REALTIME_PROVIDER_PAUSES", waiting.message, { retryAfterMs });
  }

  /** Returns a refusal or an empty result; throws the API error of every other failure. */
  #withoutImage(error: ProviderError, { provider, executedModel: executed }: Offer<ItemProvider>): Made {
    const modelVersion = error.modelVersion ?? executed;
    const nothing = { images: [], modelVersion, executed, provider: provider.name };
    if (error.code === "SAFETY_BLOCKED") return { ...nothing, refusal: error.message };
    if (error.code === "EMPTY_IMAGE_OUTPUT") return { ...nothing, refusal: null };
    throw realtimeError(error);
  }

  /** Tries again after a failure of the storage, because money must not stay held. The next start releases it otherwise. */
  async #release(id: string, calls: readonly Call[]): Promise<void> {
    const { stores, clock, log } = this.#deps;
    for (;;) {
      try {
        return await endHold(stores, id, [], calls, clock.nowMs());
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

function callOf(
  { provider }: Offer<ItemProvider>,
  { model }: CheckedContent,
  { mayBePaidTwice, isPaid: isMaybePaid }: Trail,
): Call {
  const isMaybePaidTwice = mayBePaidTwice && isMaybePaid;
  const nothing = { images: 0, isError: true, isMaybePaidTwice, billedMicroUsd: 0, usage: null };
  return { provider: provider.name, model: model.id, ...nothing };
}
