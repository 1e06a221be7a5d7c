import { ImgbatchError } from "../../contract/errors.ts";
import type { Ids } from "../../kernel/ids.ts";
import { linkSignals } from "../../kernel/linked-signal.ts";
import type { Caller } from "../batches/create-batch.ts";
import { payerOf } from "../billing/payer.ts";
import { priceRealtimeImage } from "../billing/pricing.ts";
import { type Call, recordCalls } from "../health/record-call.ts";
import { isPaid, misfit, type Offer, type Offers } from "../offers.ts";
import { StorageUnavailable } from "../ports/blob-store.ts";
import type { ItemProvider } from "../ports/image-provider.ts";
import type { RealtimeHoldRecord, UsageRecord } from "../ports/realtime-records.ts";
import type { Stores, Transaction } from "../ports/stores.ts";
import type { CheckedContent } from "./checked-content.ts";
import { countRequest, endHold, type NewHold, openHold, type RequestRate, takenForDead } from "./holds.ts";
import { NOT_RECORDED, type RequestRecord } from "./keyed-run.ts";
import { type Made, type MakeImageDeps, makeImage, type Trail, type WantedImage } from "./make-image.ts";

/** Returns one record for each image. The first of each wanted image is paid for; further ones are free. */
function usageOf(
  hold: RealtimeHoldRecord,
  { request, made, priceMicroUsd }: { request: CheckedContent; made: readonly Made[]; priceMicroUsd: number },
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
    model: request.model.id,
    executedModel: executed,
    provider,
    size: request.size,
    ratio: request.ratio,
    ...facts,
    sizeBytes: image.length,
    amountMicroUsd,
    createdAtMs: nowMs,
  }));
}

const TROUBLE_DELAY_MS = 1000;

interface RealtimeDeps extends MakeImageDeps {
  stores: Stores;
  ids: Ids;
  /** Those of the providers that are used for real time. */
  offers: Offers<ItemProvider>;
  /** The longest time that a request may take; 0 sets no limit. */
  timeoutMs: number;
  /** The limits of a key, over all processes that take requests. */
  rate: RequestRate;
  /**
   * The worker that the holds belong to: others release them when it dies. `lost` is aborted when they took this process for
   * dead; then there is another worker with another signal. While it is not fresh, they may do so at any moment.
   */
  presence: { readonly id: string; readonly lost: AbortSignal; readonly isFresh: boolean };
}

/** The outcome of a request: images, no image, or a refusal of the prompt. */
export interface GeneratedContent extends Omit<Made, "provider"> {
  id: string;
  request: CheckedContent;
}

/** Brings what was made into the form that was asked for. */
type Finish = (made: Made) => Promise<Made>;

/**
 * Makes images while the caller waits. Money is held before the work. The price of the made images is captured
 * together with the usage records; the rest of the hold is released.
 */
export class Realtime {
  readonly #deps: RealtimeDeps;
  readonly #running = new Set<Promise<unknown>>();
  readonly #stopping = new AbortController();

  constructor(deps: RealtimeDeps) {
    this.#deps = deps;
  }

  /** `generateMany` for one image. */
  async generate(
    caller: Caller,
    request: CheckedContent,
    gone: AbortSignal | null,
    record: RequestRecord<GeneratedContent> = NOT_RECORDED,
  ): Promise<GeneratedContent> {
    const [content] = await this.generateMany(caller, request, 1, gone, recordOfOne(record));
    return only(content);
  }

  /**
   * Makes `count` images of one request at the same time, with one hold for all. Returns an outcome for each image that was
   * made and that `finish` accepts; these are paid for. By default `finish` accepts all. While other processes take this one
   * for dead, it asks no upstream for further images.
   *
   * Rejects with an `ImgbatchError` when the first image failed and no other was made, with `StorageUnavailable`, or with the
   * reason of `gone` when the caller has left. `gone` is null for a request that goes on when its caller leaves.
   */
  generateMany(
    caller: Caller,
    request: CheckedContent,
    count: number,
    gone: AbortSignal | null,
    record: RequestRecord<readonly GeneratedContent[]> = NOT_RECORDED,
    finish: Finish = async (made) => made,
  ): Promise<readonly GeneratedContent[]> {
    const work = this.#generate(caller, request, count, gone, record, finish);
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
    count: number,
    gone: AbortSignal | null,
    record: RequestRecord<readonly GeneratedContent[]>,
    finish: Finish,
  ): Promise<readonly GeneratedContent[]> {
    gone?.throwIfAborted();
    this.#stopping.signal.throwIfAborted();
    const { stores, clock, ids } = this.#deps;
    const { model, size: tier, ratio, images } = request;
    const needs = { references: images.length, ratios: [ratio], tiers: [tier] };
    const offers = this.#deps.offers.all(model.id, needs);
    const first = offers[0];
    if (!first) throw noProvider(misfit(this.#deps.offers.serving(model.id), needs));
    if (record.isSpent) throw await this.#giveUp(record, first, model.id);
    const payer = await payerOf(this.#deps, caller, first);
    const priceMicroUsd = priceRealtimeImage(model, tier, caller.group, payer.rateMultiplier);
    if (priceMicroUsd === null) throw new Error(`${model.id} has no price at ${tier}`);
    const { id: worker, lost } = this.#deps.presence;
    const hold: NewHold = {
      id: ids.recordId("gen"),
      apiKeyId: caller.key.id,
      accountId: payer.account.id,
      amountMicroUsd: priceMicroUsd * count,
      createdAtMs: clock.nowMs(),
      worker,
    };
    const opening = { realtimeId: hold.id, isPaid: offers.some(({ provider }) => isPaid(provider)) };
    const { rate } = this.#deps;
    const alongside = async (tx: Transaction) => {
      await countRequest(tx, caller.key.id, rate, hold.createdAtMs);
      await record.opened(tx, opening);
    };
    const what = count === 1 ? "The image" : "The request";
    await openHold(stores, hold, payer, { what, alongside }).catch((error) => {
      if (StorageUnavailable.mayHaveHappened(error)) this.#track(this.#release(hold, []));
      throw error;
    });
    const { mayBePaidTwice } = record;
    const trails = Array.from({ length: count }, (): Trail => ({ calls: [], isPaid: false, mayBePaidTwice }));
    const calls = () => trails.flatMap((trail) => trail.calls);
    try {
      const wanted = trails.map((trail, index) => ({ request, id: hold.id, index, priceMicroUsd, trail }));
      const made = await this.#makeInTime(offers, wanted, { gone, lost }, finish);
      const contents = made.map((each) => ({ id: hold.id, request, ...each }));
      await record.keep(contents);
      const usage = usageOf(hold, { request, made, priceMicroUsd }, clock.nowMs());
      const end = () => endHold(stores, hold, usage, calls(), clock.nowMs(), (tx) => record.finished(tx));
      await end().catch((error) => {
        // What is paid for is given out: a repeat finds whether it is.
        if (!StorageUnavailable.mayHaveHappened(error)) throw error;
        return end();
      });
      return contents;
    } catch (error) {
      if (trails.some((trail) => trail.isPaid)) record.lost();
      this.#track(this.#release(hold, unbilled(calls())));
      throw error;
    }
  }

  /** Ends a request whose runs were cut short, and counts the last of them, which has not done so. */
  async #giveUp<T>(
    record: RequestRecord<T>,
    { provider }: Offer<ItemProvider>,
    model: string,
  ): Promise<ImgbatchError> {
    const message =
      "The service was stopped during two requests with this Idempotency-Key, and an upstream may have been paid for both. Use another key to make the image all the same.";
    const error = new ImgbatchError("REALTIME_OUTCOME_UNKNOWN", message);
    const nothing = { images: 0, isError: true, billedMicroUsd: 0, usage: null };
    const call = { provider: provider.name, model, isMaybePaidTwice: true, ...nothing };
    await this.#deps.stores.write(async (tx) => {
      await record.givenUp(tx, error);
      await recordCalls(tx, [call], this.#deps.clock.nowMs());
    });
    return error;
  }

  /**
   * Ends at the deadline and when the caller leaves, even when the provider goes on. `lost` ends what no upstream may have been
   * paid for. Nothing is sent that other processes may be about to send.
   */
  async #makeInTime(
    offers: readonly Offer<ItemProvider>[],
    wanted: readonly WantedImage[],
    { gone, lost }: { gone: AbortSignal | null; lost: AbortSignal },
    finish: Finish,
  ): Promise<Made[]> {
    const { clock, timeoutMs, presence } = this.#deps;
    const deadline = new AbortController();
    const done = new AbortController();
    if (timeoutMs > 0) {
      const late = () => deadline.abort(new ImgbatchError("REALTIME_TIMEOUT"));
      clock.sleep(timeoutMs, done.signal).then(late, () => {});
    }
    const makings = wanted.map(async (image) => {
      const unsent = new AbortController();
      const onLost = () => {
        if (!image.trail.isPaid) unsent.abort(takenForDead());
      };
      if (lost.aborted) onLost();
      lost.addEventListener("abort", onLost, { once: true });
      const ends = [deadline.signal, this.#stopping.signal, unsent.signal];
      const { signal, unlink } = linkSignals(...(gone ? [gone] : []), ...ends);
      const beforeSending = () => presence.isFresh || unsent.abort(takenForDead());
      const made = await makeImage(this.#deps, offers, { ...image, beforeSending }, signal).finally(() => {
        unlink();
        lost.removeEventListener("abort", onLost);
      });
      return finish(made).catch((error) => {
        const { id, index } = image;
        this.#deps.log.error("a made image could not be finished; it is not billed", {
          id,
          index,
          error: String(error),
        });
        image.trail.calls = unbilled(image.trail.calls);
        throw error;
      });
    });
    const settled = await Promise.allSettled(makings);
    done.abort();
    return outcomesOf(settled);
  }

  /** Tries again after a failure of the storage, because money must not stay held. The next start releases it otherwise. */
  async #release(hold: RealtimeHoldRecord, calls: readonly Call[]): Promise<void> {
    const { stores, clock, log } = this.#deps;
    for (let uncounted = calls; ; ) {
      try {
        return await endHold(stores, hold, [], uncounted, clock.nowMs());
      } catch (error) {
        if (StorageUnavailable.mayHaveHappened(error)) uncounted = [];
        log.error("a hold could not be released; trying again", { id: hold.id, error: String(error) });
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

/** Throws the failure of the first image when no image was made. */
function outcomesOf(settled: readonly PromiseSettledResult<Made>[]): Made[] {
  const made = settled.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  const [first] = settled;
  if (first?.status === "rejected" && made.every(({ images }) => images.length === 0)) throw first.reason;
  return made;
}

/** `problem`: why there can never be one for the request; null when there may be one later. */
function noProvider(problem: string | null): ImgbatchError {
  if (problem === null) return new ImgbatchError("REALTIME_NO_PROVIDER");
  return new ImgbatchError("REALTIME_INVALID_ARGUMENT", `contents: ${problem}`, { param: "contents" });
}

const unbilled = (calls: readonly Call[]) => calls.map((call) => ({ ...call, billedMicroUsd: 0 }));

function recordOfOne(record: RequestRecord<GeneratedContent>): RequestRecord<readonly GeneratedContent[]> {
  return {
    mayBePaidTwice: record.mayBePaidTwice,
    isSpent: record.isSpent,
    givenUp: (tx, error) => record.givenUp(tx, error),
    opened: (tx, run) => record.opened(tx, run),
    keep: ([content]) => record.keep(only(content)),
    finished: (tx) => record.finished(tx),
    lost: () => record.lost(),
  };
}

function only(content: GeneratedContent | undefined): GeneratedContent {
  if (content === undefined) throw new Error("a request for one image has no outcome");
  return content;
}
