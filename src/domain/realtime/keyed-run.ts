import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { KeptError, KeyedAnswerRecord, KeyedRequestRecord } from "../ports/realtime-records.ts";
import type { Stores, Transaction } from "../ports/stores.ts";

/**
 * Follows a request, so that its answer can be given again. `T` is what was made. Each write is part of the transaction
 * that moves the money.
 */
export interface RequestRecord<T> {
  /** An earlier run of the same request was cut short, and an upstream may have been paid for it. */
  readonly mayBePaidTwice: boolean;
  /** Two earlier runs were cut short, and an upstream may have been paid for both: nothing is sent any more. */
  readonly isSpent: boolean;
  /**
   * Called in the transaction that places the hold `realtimeId`, before anything is asked for. `isPaid`: an upstream that
   * costs money may be asked.
   */
  opened(tx: Transaction, run: { realtimeId: string; isPaid: boolean }): Promise<void>;
  /** Makes `error` the answer, in place of a third run. Throws when another answer counts. */
  givenUp(tx: Transaction, error: ImgbatchError): Promise<void>;
  /** Makes the answer durable. Called before the transaction that ends the hold. */
  keep(made: T): Promise<void>;
  /** Called in the transaction that ends the hold after `keep`. Throws when another answer counts. */
  finished(tx: Transaction): Promise<void>;
  /** The request ends with an error, and an upstream may have been paid all the same. */
  lost(): void;
}

/** For requests that are not repeated. */
export const NOT_RECORDED: RequestRecord<unknown> = {
  mayBePaidTwice: false,
  isSpent: false,
  opened: async () => {},
  givenUp: async () => {},
  keep: async () => {},
  finished: async () => {},
  lost: () => {},
};

/** How long the answer to a request with an idempotency key is kept. */
export const ANSWER_RETENTION_MS = 24 * 3_600_000;
/** Where the answers are kept. */
export const ANSWERS_PREFIX = "answers/";

/** The blob with the answer of a run. */
export function answerKey(realtimeId: string): string {
  return `${ANSWERS_PREFIX}${realtimeId}`;
}

interface Deps {
  stores: Stores;
  blobs: BlobStore;
  clock: Clock;
  log: Log;
}

/** Writes the body of the answer. An `ImgbatchError` that it throws is the answer instead. */
export type Render<T> = (made: T) => Buffer | Promise<Buffer>;

/** The state of a run. */
export type RunOutcome = { body: Buffer } | { error: ImgbatchError };

export async function outcomeOf<T>(render: Render<T>, made: T): Promise<RunOutcome> {
  try {
    return { body: await render(made) };
  } catch (error) {
    if (error instanceof ImgbatchError) return { error };
    throw error;
  }
}

/** Another process answers the same request. Nothing was made here, or it is not billed and not given out. */
export class Overtaken extends Error {
  constructor() {
    super("another process answers this request");
    this.name = "Overtaken";
  }
}

/** One run of a request with an idempotency key. */
export class KeyedRun<T> implements RequestRecord<T> {
  readonly mayBePaidTwice: boolean;
  readonly isSpent: boolean;
  readonly #deps: Deps;
  readonly #request: Pick<KeyedRequestRecord, "apiKeyId" | "key" | "fingerprint">;
  readonly #earlier: KeyedRequestRecord | null;
  readonly #render: Render<T>;
  #record: KeyedRequestRecord | null = null;
  #kept: { answer: KeyedAnswerRecord; outcome: RunOutcome } | null = null;
  #isLost = false;
  #isGivenUp = false;

  /** `earlier`: the record of a run that was cut short; null when there was none. */
  constructor(
    deps: Deps,
    { apiKeyId, key, fingerprint }: Pick<KeyedRequestRecord, "apiKeyId" | "key" | "fingerprint">,
    earlier: KeyedRequestRecord | null,
    render: Render<T>,
  ) {
    this.#deps = deps;
    this.#request = { apiKeyId, key, fingerprint };
    this.#earlier = earlier;
    this.#render = render;
    this.mayBePaidTwice = (earlier?.paidRuns ?? 0) > 0;
    this.isSpent = (earlier?.paidRuns ?? 0) > 1;
  }

  /** How many runs an upstream may have been paid for, this one included. */
  get paidRuns(): number {
    return (this.#record ?? this.#earlier)?.paidRuns ?? 0;
  }

  /** The answer that was kept. */
  get outcome(): RunOutcome {
    if (this.#kept === null) throw new Error("the work has ended and has kept no answer");
    return this.#kept.outcome;
  }

  async opened(tx: Transaction, { realtimeId, isPaid }: { realtimeId: string; isPaid: boolean }) {
    await this.#requireLatest(tx);
    const paidRuns = (this.#earlier?.paidRuns ?? 0) + (isPaid ? 1 : 0);
    this.#record = { ...this.#request, realtimeId, paidRuns, ...this.#ends(null) };
    await tx.keyedRequests.put(this.#record);
  }

  async givenUp(tx: Transaction, error: ImgbatchError): Promise<void> {
    await this.#requireLatest(tx);
    if (this.#earlier === null) throw new Error("a request is given up before its first run");
    await tx.keyedRequests.put({ ...this.#earlier, ...this.#ends({ error: keptError(error) }) });
    this.#isGivenUp = true;
  }

  async keep(made: T): Promise<void> {
    if (this.#record === null) throw new Error("a request is kept before it was opened");
    const outcome = await outcomeOf(this.#render, made);
    const answer =
      "error" in outcome
        ? { error: keptError(outcome.error) }
        : { sha256: (await this.#deps.blobs.put(answerKey(this.#record.realtimeId), outcome.body)).sha256 };
    this.#kept = { answer, outcome };
  }

  async finished(tx: Transaction): Promise<void> {
    if (this.#record === null || this.#kept === null) {
      throw new Error("a request has finished before it was kept");
    }
    const finished = { ...this.#record, ...this.#ends(this.#kept.answer) };
    if (!(await this.#isOurs(tx, finished))) throw new Overtaken();
    await tx.keyedRequests.put(finished);
  }

  lost(): void {
    this.#isLost = true;
  }

  /**
   * Ends the run with an error. Returns it when it is the answer to every repeat; null when a repeat runs again. The end of
   * the service is no answer.
   */
  async failed(error: unknown): Promise<ImgbatchError | null> {
    const record = this.#record;
    const earlier = this.#earlier;
    if (this.#isGivenUp && error instanceof ImgbatchError) return error;
    if (record === null) return null;
    if (!this.#isLost) {
      await this.#write(record, (tx) =>
        earlier === null ? tx.keyedRequests.remove(record) : tx.keyedRequests.put(earlier),
      );
      return null;
    }
    if (!(error instanceof ImgbatchError) || error.code === "REALTIME_STOPPING") return null;
    const answer = { error: keptError(error) };
    await this.#write(record, (tx) => tx.keyedRequests.put({ ...record, ...this.#ends(answer) }));
    return error;
  }

  /** Throws when another process has begun a run since the earlier one was read, or has answered. */
  async #requireLatest(tx: Transaction): Promise<void> {
    const { apiKeyId, key } = this.#request;
    await tx.lock("key", apiKeyId);
    const now = await tx.keyedRequests.find(apiKeyId, key);
    if (now?.realtimeId !== this.#earlier?.realtimeId || now?.answer) throw new Overtaken();
  }

  /** Whether no other process has begun a run or given it up, because it took this one for dead. */
  async #isOurs(tx: Transaction, { apiKeyId, key, realtimeId }: KeyedRequestRecord): Promise<boolean> {
    await tx.lock("key", apiKeyId);
    const now = await tx.keyedRequests.find(apiKeyId, key);
    const { answer = null } = now ?? {};
    const isGivenUp =
      answer !== null && "error" in answer && answer.error.code === "REALTIME_OUTCOME_UNKNOWN";
    return now?.realtimeId === realtimeId && !isGivenUp;
  }

  #ends(answer: KeyedAnswerRecord | null) {
    return { answer, expiresAtMs: this.#deps.clock.nowMs() + ANSWER_RETENTION_MS };
  }

  /** Without this write, a repeat finds a run that was cut short. Another process may have begun one by now: it stays. */
  async #write(record: KeyedRequestRecord, work: (tx: Transaction) => Promise<void>): Promise<void> {
    const { stores, log } = this.#deps;
    const ifOurs = async (tx: Transaction) => {
      if (await this.#isOurs(tx, record)) await work(tx);
    };
    await stores.write(ifOurs).catch((error) => {
      log.error("the end of a request with an idempotency key could not be recorded", {
        error: String(error),
      });
    });
  }
}

const keptError = ({ code, message }: ImgbatchError): KeptError => ({ code, message });
