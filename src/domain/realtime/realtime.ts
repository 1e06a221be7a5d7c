import { ImgbatchError, LOST_BEFORE, TWO_LOST } from "../../contract/errors.ts";
import type { UnknownOutcome } from "../../contract/limits.ts";
import type { Clock } from "../../kernel/clock.ts";
import { type Ids, sha256Hex } from "../../kernel/ids.ts";
import { linkSignals } from "../../kernel/signals.ts";
import type { Caller } from "../batches/create-batch.ts";
import { payerOf, priceRealtimeImage } from "../billing/payer.ts";
import { type CheckedContent, needsOf } from "../checked-content.ts";
import { commitOrUndo } from "../commit-or-undo.ts";
import type { Call } from "../health/calls.ts";
import { waitingFor } from "../health/waiting.ts";
import {
  identityOf,
  isPaid,
  type ModelEntry,
  mayBePaidTwice,
  type Offers,
  type UnmetNeed,
  unmetNeed,
} from "../models.ts";
import { type BlobStore, StorageUnavailable } from "../ports/blob-store.ts";
import type { ItemProvider } from "../ports/image-provider.ts";
import type { Stores, Transaction } from "../ports/stores.ts";
import type { KeyedRequestRecord, LostCall, RealtimeHoldRecord, UpstreamTask } from "../records.ts";
import { KEPT } from "../retention.ts";
import { countRequest, endHold, moveHold, openHold, type RequestRate } from "./holds.ts";
import {
  type Attempts,
  type Finish,
  type Made,
  type MakeImageDeps,
  makeImages,
  unbilled,
  usageOf,
} from "./make-image.ts";

/** Begins the key of a request without one. No header can hold it. */
const UNKEYED = "\u2261 ";
const REPEATED_WITHIN_MS = 60_000;
/** Why an equal request is not sent now, by the rule for paid requests whose outcome is unknown. */
const REPEATED: Record<UnknownOutcome, string> = {
  stop: "An equal request within the last minute went to an upstream, which may have been paid for it, and gave no image. Nothing was sent now. To ask again all the same, wait a minute or send an Idempotency-Key.",
  once: "Two equal requests within a minute went to an upstream, which may have been paid for both, and gave no image. Nothing was sent now. To ask again all the same, wait a minute or send an Idempotency-Key.",
};

/** How often a paid request is sent again whose outcome is unknown. */
const MOST_REPEATS_OF: Record<UnknownOutcome, number> = { stop: 0, once: 1 };

/** Errors after which the same request may be sent again, where a lost answer may be asked for once more. */
const RETRY_SENDS_AGAIN: readonly string[] = ["REALTIME_PROVIDER_UNREACHABLE", "REALTIME_TIMEOUT"];

const TROUBLE_DELAY_MS = 1000;
/** How often a repeat asks for the answer of the request that is at work. */
const POLL_MS = 250;

interface RealtimeDeps extends MakeImageDeps {
  stores: Stores;
  blobs: BlobStore;
  ids: Ids;
  /** The offers of the providers that are used for real time. */
  offers: Offers<ItemProvider>;
  /** The limits of a key, over all processes that take requests. */
  rate: RequestRate;
}

/** The outcome of one image of a request: images, no image, or a refusal of the prompt. */
export interface GeneratedContent extends Omit<Made, "provider"> {
  id: string;
  /** What was asked for. */
  asked: CheckedContent;
}

/** A request that has passed every check. */
interface RealtimeRequest {
  caller: Caller;
  /** The model that was asked for. */
  model: ModelEntry;
  content: CheckedContent;
  /** How many images are made at the same time, with one hold for all. */
  count: number;
  /** Aborted when the caller leaves. A request with an idempotency key goes on all the same. */
  gone: AbortSignal;
  /** The idempotency key. Null: the request has none, and ends when its caller leaves. */
  key: string | null;
  /**
   * SHA-256 over the operation and everything that it is asked for: requests that ask for the same have equal ones. Libraries
   * repeat a request without a key by themselves, also when a proxy cut the connection. When one may have been paid and gave no
   * image, an equal one within a minute counts as its repeat.
   */
  fingerprint: string;
  /** Returns the name that the caller's API has for a part of a request. */
  fieldOf(about: UnmetNeed["about"]): string;
  /** Brings an image into the form that was asked for. Default: it has that form. */
  finish?: Finish;
  /** Writes the body of the answer, before anything is paid for. An `ImgbatchError` that it throws is the answer instead. */
  render(contents: readonly GeneratedContent[]): Buffer | Promise<Buffer>;
  /**
   * `write` records that the work has begun, in the transaction that holds its money. `begun` is called after that transaction.
   * Default: nothing is recorded.
   */
  begin?: { write(tx: Transaction): Promise<void>; begun(): void };
  /** Writes what is kept of a rendered answer, in the transaction that pays for it. An error undoes both. Default: nothing is kept. */
  alongside?(tx: Transaction): Promise<void>;
}

/**
 * Makes images while the caller waits. Money is held before the work. The price of the made images is captured
 * together with the usage records; the rest of the hold is released.
 *
 * With an idempotency key, a request is answered once: a repeat gets the first finished answer, byte for byte, and a repeat
 * that comes too early waits for it, also when another process makes it: that one is at work as long as the hold of the
 * request exists. An answer is finished when it is a success, or an error after which an upstream may have been paid. After
 * any other error a repeat runs again. A run that a stop or a kill cut short is followed by another one; when an upstream
 * may have been paid for it, or its answer was lost, there is none, or one more, which is marked: see
 * `MakeImageDeps.unknownOutcome`.
 * `REALTIME_OUTCOME_UNKNOWN` answers the next repeat.
 * What an upstream has begun as a task, and has not ended, is no such run: each repeat asks for the same task.
 */
export class Realtime {
  readonly #deps: RealtimeDeps;
  readonly #work = new Set<Promise<unknown>>();
  readonly #stopping = new AbortController();

  constructor(deps: RealtimeDeps) {
    this.#deps = deps;
  }

  /** The worker that answers the requests of this process. */
  get worker(): string {
    return this.#deps.presence.id;
  }

  /**
   * Returns the answer to a request. Each image that was made and finished is paid for. While other processes take this one
   * for dead, it asks no upstream for further images.
   *
   * Rejects with an `ImgbatchError` when the first image failed and no other was made, with
   * `REALTIME_IDEMPOTENCY_CONFLICT` when the key was used with another request, with `StorageUnavailable`, or with the reason
   * of `gone`.
   */
  answer(request: RealtimeRequest): Promise<KeyedAnswer> {
    const work =
      request.key === null ? this.#answerUnkeyed(request) : this.#answerKeyed(request, request.key);
    this.#track(work);
    return work;
  }

  /**
   * Gives running requests `graceMs` (default 0). Then it ends them and later ones with `REALTIME_STOPPING`, and releases
   * their holds.
   */
  async stop(graceMs = 0): Promise<void> {
    if (graceMs > 0 && this.#work.size > 0) {
      const done = new AbortController();
      const ended = Promise.allSettled([...this.#work]).finally(() => done.abort());
      await Promise.race([ended, this.#deps.clock.sleep(graceMs, done.signal).catch(() => {})]);
    }
    this.#stopping.abort(new ImgbatchError("REALTIME_STOPPING"));
    // A request that ends may add the release of its hold to the work.
    while (this.#work.size > 0) await Promise.allSettled([...this.#work]);
  }

  /**
   * Answers a request without a key. After a paid request without an image, an equal one within a minute is refused, or sent
   * once more and marked: see `MakeImageDeps.unknownOutcome`.
   */
  async #answerUnkeyed(request: RealtimeRequest): Promise<KeyedAnswer> {
    const { fingerprint } = request;
    const { stores, clock, ids, unknownOutcome } = this.#deps;
    const place = { apiKeyId: request.caller.key.id, key: UNKEYED + fingerprint };
    const found = await stores.read.keyedRequests.find(place.apiKeyId, place.key);
    const earlier = found !== null && found.expiresAtMs > clock.nowMs() ? found : null;
    if ((earlier?.paidRuns ?? 0) > MOST_REPEATS_OF[unknownOutcome])
      throw new ImgbatchError("REALTIME_OUTCOME_UNKNOWN", REPEATED[unknownOutcome], { mayBePaid: true });
    try {
      const answer = await this.#makeAnswer(request, earlier);
      if (earlier !== null) await stores.write((tx) => tx.keyedRequests.remove(earlier));
      return answer;
    } catch (error) {
      const offers = this.#deps.offers.all(request.model.id, needsOf([request.content]));
      const isPaidFor = offers.some(({ provider }) => isPaid(provider));
      if (!(error instanceof ImgbatchError) || !error.mayBePaid || !isPaidFor) throw error;
      const paidRuns = (earlier?.paidRuns ?? 0) + 1;
      const record = {
        ...place,
        fingerprint,
        realtimeId: ids.recordId("gen"),
        paidRuns,
        tasks: {},
        answer: null,
      };
      const expiresAtMs = clock.nowMs() + REPEATED_WITHIN_MS;
      await stores.write((tx) => tx.keyedRequests.put({ ...record, expiresAtMs }));
      return { error, isReplay: false, paidRuns };
    }
  }

  async #answerKeyed(request: RealtimeRequest, key: string): Promise<KeyedAnswer> {
    const { stores, blobs, clock } = this.#deps;
    const { signal, unlink } = linkSignals(request.gone, this.#stopping.signal);
    try {
      for (;;) {
        const earlier = await stores.read.keyedRequests.find(request.caller.key.id, key);
        if (earlier !== null && earlier.fingerprint !== request.fingerprint) {
          throw new ImgbatchError("REALTIME_IDEMPOTENCY_CONFLICT");
        }
        if (earlier !== null && earlier.answer !== null) return await replay(blobs, earlier, earlier.answer);
        if (earlier !== null && (await stores.read.realtimeHolds.isOpen(earlier.realtimeId)).isOpen) {
          await clock.sleep(POLL_MS, signal);
          continue;
        }
        try {
          return await this.#makeAnswer(request, earlier);
        } catch (error) {
          if (!(error instanceof Overtaken)) throw error;
        }
      }
    } finally {
      unlink();
    }
  }

  /**
   * Makes an answer in three transactions: the first reserves the money and the key, then the images and the answer are
   * made, and the last pays for them or releases the money. `earlier`: the record of a run with the same key that was cut
   * short.
   */
  async #makeAnswer(
    { caller, model, content, count, key, fingerprint, ...request }: RealtimeRequest,
    earlier: KeyedRequestRecord | null,
  ): Promise<KeyedAnswer> {
    const gone = key === null ? request.gone : null;
    gone?.throwIfAborted();
    this.#stopping.signal.throwIfAborted();
    const { stores, blobs, clock, ids, rate, presence, health } = this.#deps;
    const { size, quality } = content.options;
    const needs = needsOf([content]);
    const offers = this.#deps.offers.all(model.id, needs);
    const first = offers[0];
    if (!first) throw this.#noProvider(model.id, needs, request.fieldOf);
    const paidBefore = earlier?.paidRuns ?? 0;
    const tasks = { ...earlier?.tasks };
    const areBegun = Object.keys(tasks).length === count;
    const most = MOST_REPEATS_OF[this.#deps.unknownOutcome];
    if (earlier !== null && paidBefore > most && !areBegun) return this.#giveUp(earlier);
    const payer = await payerOf(this.#deps, caller, first);
    const priceMicroUsd = priceRealtimeImage(model, size, caller.group, payer.rateMultiplier, quality);
    if (priceMicroUsd === null) throw new Error(`${model.id} has no price at ${size}`);
    const { id: worker, lost } = presence;
    const createdAtMs = clock.nowMs();
    const owner = { apiKeyId: caller.key.id, accountId: payer.account.id };
    const id = ids.recordId("gen");
    const isAgain = paidBefore > 0;
    const able = offers.find(({ provider, executedModel }) => !health.blockOf(provider, executedModel));
    /** Which call counts for an image when this process dies: none at a provider that costs nothing. */
    const callAt = (provider: ItemProvider): LostCall | null => {
      const isMaybePaidTwice = isAgain && mayBePaidTwice(provider);
      const facts = { provider: provider.name, model: model.id, isMaybePaidTwice };
      return isPaid(provider) ? { ...facts, heldMicroUsd: priceMicroUsd } : null;
    };
    const lostCalls: Record<number, LostCall> = {};
    for (let index = 0; index < count; index++) {
      const task = tasks[index];
      const offer = task ? offers.find(({ provider }) => identityOf(provider) === task.upstream) : able;
      const call = offer ? callAt(offer.provider) : null;
      if (call !== null) lostCalls[index] = call;
    }
    const hold = { id, ...owner, amountMicroUsd: priceMicroUsd * count, createdAtMs, worker, lostCalls };
    const paidRuns =
      paidBefore + (!areBegun && offers.some(({ provider }) => mayBePaidTwice(provider)) ? 1 : 0);
    const record =
      key === null ? null : { apiKeyId: caller.key.id, key, fingerprint, realtimeId: id, paidRuns, tasks };
    const reserve = async (tx: Transaction) => {
      // A repeat waits for the answer: it is no further request.
      if (record !== null) await requireNoOther(tx, record, earlier);
      await countRequest(tx, caller.key.id, rate, createdAtMs);
      if (record !== null) await putAnswer(tx, record, null, clock);
      await request.begin?.write(tx);
    };
    /** Without an answer, a repeat runs again as if this run had not been. */
    const forget = async (tx: Transaction) => {
      if (record === null) return;
      const change = () => (earlier ? tx.keyedRequests.put(earlier) : tx.keyedRequests.remove(record));
      await changeLatest(tx, record, change);
    };
    try {
      const what = count === 1 ? "The image" : "The request";
      await openHold(stores, hold, payer, { what, alongside: reserve });
      request.begin?.begun();
    } catch (error) {
      if (StorageUnavailable.mayHaveHappened(error)) this.#track(this.#release(hold, [], forget));
      throw error;
    }
    const attemptsOfEach = Array.from({ length: count }, (_, index): Attempts => {
      const task = tasks[index] ?? null;
      const keep = async (kept: UpstreamTask) => {
        tasks[index] = kept;
        if (record === null) return;
        await stores.write((tx) => changeLatest(tx, record, () => putAnswer(tx, record, null, clock)));
      };
      const isBegun = task !== null;
      // One of the runs before has begun the task.
      const mayBePaidTwice = paidBefore > (isBegun ? 1 : 0);
      const beforeAsking = async (provider: ItemProvider) => {
        const call = callAt(provider);
        if (isBegun || call?.provider === lostCalls[index]?.provider) return;
        await moveHold(stores, hold, index, call, clock.nowMs());
        delete lostCalls[index];
        if (call !== null) lostCalls[index] = call;
      };
      return {
        calls: [],
        beforeAsking,
        isSent: false,
        isPaid: isBegun,
        isInDoubt: isBegun,
        mayBePaidTwice,
        task,
        keep,
      };
    });
    const calls = () => attemptsOfEach.flatMap((attempts) => attempts.calls);
    try {
      const asked = { model, content, priceMicroUsd };
      const wanted = attemptsOfEach.map((attempts, index) => ({ ...asked, id, index, attempts }));
      const ends = { gone, lost, stopping: this.#stopping.signal };
      const made = await makeImages(this.#deps, offers, wanted, ends, request.finish);
      const outcome = await outcomeOf(() =>
        request.render(made.map((each) => ({ id, asked: content, ...each }))),
      );
      const keep = async ({ body }: { body: Buffer }) =>
        (await blobs.put(KEPT.answers.prefix + id, body)).sha256;
      const bill = upstreamBill(calls());
      const kept =
        "error" in outcome ? keptError(outcome.error) : record && { sha256: await keep(outcome), ...bill };
      const usage = usageOf(hold, asked, made, clock.nowMs());
      const pay = () =>
        endHold(stores, hold, usage, calls(), clock.nowMs(), async (tx) => {
          if ("body" in outcome) await request.alongside?.(tx);
          if (record === null) return;
          const { isOurs } = await changeLatest(tx, record, () => putAnswer(tx, record, kept, clock));
          if (!isOurs) throw new Overtaken();
        });
      // What is paid for is given out: a repeat finds whether it is.
      const payOnce = () =>
        pay().catch((error) => (StorageUnavailable.mayHaveHappened(error) ? pay() : Promise.reject(error)));
      await commitOrUndo(payOnce, async () => record && blobs.delete(KEPT.answers.prefix + id));
      return { ...outcome, ...bill, isReplay: false, paidRuns };
    } catch (thrown) {
      const error = paidBefore > 0 ? afterLost(thrown) : thrown;
      const isPaidFor = attemptsOfEach.some((attempts) => attempts.isPaid);
      // The end of the service is no answer, nor is an unexpected error: a repeat finds a run that was cut short.
      const isCutShort =
        attemptsOfEach.some(({ task }) => task !== null) || !(error instanceof ImgbatchError);
      // The next repeat sends the request once more. It is marked, also after a kill.
      const isSentOnceMore =
        paidRuns > 0 && paidRuns <= most && RETRY_SENDS_AGAIN.includes((error as ImgbatchError).code);
      const isFinal = !isCutShort && !isSentOnceMore && error.code !== "REALTIME_STOPPING";
      const final = isFinal ? error : null;
      const releasing = this.#release(hold, unbilled(calls()), async (tx) => {
        if (!isPaidFor) await forget(tx);
        else if (final && record)
          await changeLatest(tx, record, () => putAnswer(tx, record, keptError(final), clock));
      });
      this.#track(releasing);
      if (record === null) throw error;
      await releasing;
      if (isPaidFor && final) return { error: final, isReplay: false, paidRuns };
      throw error;
    }
  }

  /** Ends a request whose runs were cut short. */
  async #giveUp(earlier: KeyedRequestRecord): Promise<KeyedAnswer> {
    const { stores, clock } = this.#deps;
    const why =
      earlier.paidRuns > 1
        ? TWO_LOST
        : "The service was stopped before the answer of the upstream came. The image may be paid.";
    const message = `${why} Use another Idempotency-Key to make it all the same.`;
    const error = new ImgbatchError("REALTIME_OUTCOME_UNKNOWN", message);
    await stores.write(async (tx) => {
      await requireNoOther(tx, earlier, earlier);
      await putAnswer(tx, earlier, keptError(error), clock);
    });
    return { error, isReplay: false, paidRuns: earlier.paidRuns };
  }

  /**
   * Releases a hold, and ends the run of its key in the same transaction. Resolves after the first attempt. A failed one is
   * repeated, because money must not stay held; the next start releases it otherwise.
   */
  async #release(
    hold: RealtimeHoldRecord,
    calls: readonly Call[],
    end: (tx: Transaction) => Promise<void>,
  ): Promise<void> {
    const { stores, clock, log } = this.#deps;
    let uncounted = calls;
    const attempt = async () => {
      try {
        await endHold(stores, hold, [], uncounted, clock.nowMs(), end);
        return true;
      } catch (error) {
        if (StorageUnavailable.mayHaveHappened(error)) uncounted = [];
        log.error("a hold could not be released; trying again", { id: hold.id, error: String(error) });
        return false;
      }
    };
    const repeat = async () => {
      while (!this.#stopping.signal.aborted) {
        await clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).catch(() => {});
        if (await attempt()) return;
      }
    };
    if (!(await attempt())) this.#track(repeat());
  }

  /** Why nothing can make an image: what is asked for, or a provider that is disabled. */
  #noProvider(
    modelId: string,
    needs: ReturnType<typeof needsOf>,
    fieldOf: RealtimeRequest["fieldOf"],
  ): ImgbatchError {
    const { offers, health } = this.#deps;
    const serving = offers.serving(modelId);
    const found: UnmetNeed | null = unmetNeed(serving, needs);
    if (found !== null) {
      const param = fieldOf(found.about);
      return new ImgbatchError("REALTIME_INVALID_ARGUMENT", `${param}: ${found.problem}`, { param });
    }
    const waiting = waitingFor(serving.map((each) => health.blockOf(each.provider, each.executedModel)));
    return serving.length === 0 || waiting === null
      ? new ImgbatchError("REALTIME_NO_PROVIDER")
      : new ImgbatchError("REALTIME_NO_PROVIDER", waiting.message, { because: waiting.code });
  }

  #track(work: Promise<unknown>): void {
    const tracked = work.catch(() => {}).finally(() => this.#work.delete(tracked));
    this.#work.add(tracked);
  }
}

/** Says in a failure that the answer of an earlier request was lost. */
function afterLost(error: unknown): unknown {
  if (!(error instanceof ImgbatchError)) return error;
  const { code, message } = error;
  if (code === "REALTIME_OUTCOME_UNKNOWN" || code === "REALTIME_STOPPING") return error;
  return new ImgbatchError(code, `${message.replace(/\.?$/, ".")} ${LOST_BEFORE}`, {
    ...error,
    cause: error,
  });
}

async function outcomeOf(render: () => Buffer | Promise<Buffer>): Promise<Outcome> {
  try {
    return { body: await render() };
  } catch (error) {
    if (error instanceof ImgbatchError) return { error };
    throw error;
  }
}

/** The body of an answer, or an error that is the answer. */
type Outcome = { body: Buffer } | { error: ImgbatchError };

/**
 * `isReplay`: it is the answer to another request with the same key. `paidRuns`: how many runs an upstream may have been
 * paid for. `upstreamMicroUsd`: the sum of the bills that upstreams have reported; left out where none has.
 */
type KeyedAnswer = Outcome & { isReplay: boolean; paidRuns: number; upstreamMicroUsd?: number };

/** Adds up the bills that upstreams have reported for calls, those of failures included. Empty where none has. */
function upstreamBill(calls: readonly Call[]): { upstreamMicroUsd?: number } {
  const known = calls.flatMap(({ usage }) => usage?.costMicroUsd ?? []);
  return known.length === 0 ? {} : { upstreamMicroUsd: known.reduce((sum, each) => sum + each, 0) };
}

type KeptAnswer = NonNullable<KeyedRequestRecord["answer"]>;

/** One run of a request with an idempotency key. */
type Run = Omit<KeyedRequestRecord, "answer" | "expiresAtMs">;

/** Another process answers the same request. Nothing was made here, or it is not billed and not given out. */
class Overtaken extends Error {}

/** Throws `Overtaken` when another process has begun a run since the `earlier` one was read, or has answered. */
async function requireNoOther(
  tx: Transaction,
  { apiKeyId, key }: Pick<Run, "apiKeyId" | "key">,
  earlier: KeyedRequestRecord | null,
): Promise<void> {
  await tx.lock("key", apiKeyId);
  const now = await tx.keyedRequests.find(apiKeyId, key);
  if (now?.realtimeId !== earlier?.realtimeId || now?.answer) throw new Overtaken();
}

/** Makes a change, unless another process has begun a run or given it up, because it took this one for dead. */
async function changeLatest(
  tx: Transaction,
  { apiKeyId, key, realtimeId }: Run,
  change: () => Promise<void>,
): Promise<{ isOurs: boolean }> {
  await tx.lock("key", apiKeyId);
  const now = await tx.keyedRequests.find(apiKeyId, key);
  const { answer = null } = now ?? {};
  const isGivenUp = answer !== null && "error" in answer && answer.error.code === "REALTIME_OUTCOME_UNKNOWN";
  const isOurs = now?.realtimeId === realtimeId && !isGivenUp;
  if (isOurs) await change();
  return { isOurs };
}

/** Writes a run with its answer; null while it is at work. */
function putAnswer(tx: Transaction, run: Run, answer: KeptAnswer | null, clock: Clock): Promise<void> {
  return tx.keyedRequests.put({ ...run, answer, expiresAtMs: clock.nowMs() + KEPT.answers.forMs });
}

function keptError({ code, message, mayBePaid }: ImgbatchError): KeptAnswer {
  return { error: { code, message, ...(mayBePaid && { mayBePaid }) } };
}

/** Returns an earlier answer. Throws `BATCH_IMAGE_RESULT_MISSING` when its body is missing or damaged. */
async function replay(
  blobs: BlobStore,
  { realtimeId, paidRuns }: KeyedRequestRecord,
  answer: KeptAnswer,
): Promise<KeyedAnswer> {
  if ("error" in answer) {
    const { code, message, ...details } = answer.error;
    return { error: new ImgbatchError(code, message, details), isReplay: true, paidRuns };
  }
  const body = await blobs.read(KEPT.answers.prefix + realtimeId);
  const { sha256, ...bill } = answer;
  if (body !== null && sha256Hex(body) === sha256) return { body, ...bill, isReplay: true, paidRuns };
  const message = "The answer with this Idempotency-Key is missing or damaged.";
  throw new ImgbatchError("BATCH_IMAGE_RESULT_MISSING", message);
}
