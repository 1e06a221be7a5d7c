import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Log } from "../../kernel/log.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { KeyedAnswerRecord, KeyedRequestRecord } from "../ports/realtime-records.ts";
import type { Repositories, Stores } from "../ports/stores.ts";
import type { RequestRecord } from "./request-record.ts";

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

/** One run of a request with an idempotency key. */
export class KeyedRun<T> implements RequestRecord<T> {
  readonly mayBePaidTwice: boolean;
  readonly #deps: Deps;
  readonly #request: Pick<KeyedRequestRecord, "apiKeyId" | "key" | "fingerprint">;
  readonly #earlier: KeyedRequestRecord | null;
  readonly #render: (made: T) => Buffer;
  #record: KeyedRequestRecord | null = null;
  #body: Buffer | null = null;
  #sha256 = "";
  #isLost = false;

  /** `earlier`: the record of a run that was cut short; null when there was none. */
  constructor(
    deps: Deps,
    { apiKeyId, key, fingerprint }: Pick<KeyedRequestRecord, "apiKeyId" | "key" | "fingerprint">,
    earlier: KeyedRequestRecord | null,
    render: (made: T) => Buffer,
  ) {
    this.#deps = deps;
    this.#request = { apiKeyId, key, fingerprint };
    this.#earlier = earlier;
    this.#render = render;
    this.mayBePaidTwice = (earlier?.paidRuns ?? 0) > 0;
  }

  /** The answer that was kept. */
  get body(): Buffer {
    if (this.#body === null) throw new Error("the work has ended and has kept no answer");
    return this.#body;
  }

  async opened(tx: Repositories, { realtimeId, isPaid }: { realtimeId: string; isPaid: boolean }) {
    const paidRuns = (this.#earlier?.paidRuns ?? 0) + (isPaid ? 1 : 0);
    this.#record = { ...this.#request, realtimeId, paidRuns, ...this.#ends(null) };
    await tx.keyedRequests.put(this.#record);
  }

  async keep(made: T): Promise<void> {
    if (this.#record === null) throw new Error("a request is kept before it was opened");
    this.#body = this.#render(made);
    const { sha256 } = await this.#deps.blobs.put(answerKey(this.#record.realtimeId), this.#body);
    this.#sha256 = sha256;
  }

  async finished(tx: Repositories): Promise<void> {
    if (this.#record === null) throw new Error("a request has finished before it was opened");
    await tx.keyedRequests.put({ ...this.#record, ...this.#ends({ sha256: this.#sha256 }) });
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
    if (record === null) return null;
    if (!this.#isLost) {
      await this.#write((tx) =>
        earlier === null ? tx.keyedRequests.remove(record.realtimeId) : tx.keyedRequests.put(earlier),
      );
      return null;
    }
    if (!(error instanceof ImgbatchError) || error.code === "REALTIME_STOPPING") return null;
    const { code, message } = error;
    await this.#write((tx) =>
      tx.keyedRequests.put({ ...record, ...this.#ends({ error: { code, message } }) }),
    );
    return error;
  }

  #ends(answer: KeyedAnswerRecord | null) {
    return { answer, expiresAtMs: this.#deps.clock.nowMs() + ANSWER_RETENTION_MS };
  }

  /** Without this write, a repeat finds a run that was cut short. */
  async #write(work: (tx: Repositories) => Promise<void>): Promise<void> {
    const { stores, log } = this.#deps;
    await stores.write(work).catch((error) => {
      log.error("the end of a request with an idempotency key could not be recorded", {
        error: String(error),
      });
    });
  }
}
