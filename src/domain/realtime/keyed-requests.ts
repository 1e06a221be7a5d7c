import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import { unlessAborted } from "../../kernel/unless-aborted.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { KeyedRequestRecord } from "../ports/realtime-records.ts";
import type { Stores } from "../ports/stores.ts";
import {
  answerKey,
  KeyedRun,
  Overtaken,
  type Render,
  type RequestRecord,
  type RunOutcome,
} from "./keyed-run.ts";

/** A request that its caller may send again, to get the same answer. */
interface KeyedRequest {
  apiKeyId: string;
  /** The idempotency key, as it is stored. */
  key: string;
  /**
   * SHA-256 over the operation and everything that it is asked for, in lower-case hexadecimal: requests that ask for the
   * same have equal ones, however they were written.
   */
  fingerprint: string;
}

/** How a request is answered for the first time. */
interface KeyedWork<T> {
  /** Makes what is asked for. It is not told when a caller leaves. */
  make(record: RequestRecord<T>): Promise<T>;
  render: Render<T>;
}

/**
 * `isReplay`: it is the answer to another request with the same key. `paidRuns`: how many runs an upstream may have been
 * paid for.
 */
type KeyedAnswer = { isReplay: boolean; paidRuns: number } & RunOutcome;

interface Deps {
  stores: Stores;
  blobs: BlobStore;
  clock: Clock;
  log: Log;
}

interface Running {
  fingerprint: string;
  /** Resolves when it is known whether this request makes something; false: it found an earlier answer. */
  begins: Promise<boolean>;
  outcome: Promise<KeyedAnswer>;
}

/** How often a repeat looks for the answer of another process. */
const LOOK_EVERY_MS = 250;

/**
 * Answers the requests of this process that have an idempotency key. Each key of each API key is answered once: a repeat
 * gets the first finished answer, byte for byte, and a repeat that comes too early waits for it, also when another
 * process makes it: that one is at work as long as the hold of the request is there.
 *
 * An answer is finished when it is a success, or an error after which an upstream may have been paid. After any other
 * error a repeat runs again. A run that a stop or a kill cut short is followed by another one; when an upstream may have
 * been paid for it, there is only one more, which is marked. `REALTIME_OUTCOME_UNKNOWN` answers the next repeat then.
 */
export class KeyedRequests {
  readonly #deps: Deps;
  readonly #running = new Map<string, Running>();

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /**
   * Returns the answer with this key. The first request goes on when its caller leaves; a repeat that waits for it rejects
   * with the reason of `gone`. Throws `REALTIME_IDEMPOTENCY_CONFLICT` when the key was used with another request, and the
   * errors of the work that are not final.
   */
  async answer<T>(request: KeyedRequest, gone: AbortSignal, work: KeyedWork<T>): Promise<KeyedAnswer> {
    const id = `${request.apiKeyId} ${request.key}`;
    for (let other = this.#running.get(id); other; other = this.#running.get(id)) {
      if (other.fingerprint === request.fingerprint) {
        return { ...(await unlessAborted(other.outcome, gone)), isReplay: true };
      }
      if (await other.begins) throw conflict();
    }
    let tell: (begins: boolean) => void = () => {};
    const begins = new Promise<boolean>((resolve) => {
      tell = resolve;
    });
    const outcome = this.#answer(request, work, () => tell(true));
    this.#running.set(id, { fingerprint: request.fingerprint, begins, outcome });
    try {
      return await outcome;
    } finally {
      this.#running.delete(id);
      tell(false);
    }
  }

  async #answer<T>(request: KeyedRequest, work: KeyedWork<T>, begin: () => void): Promise<KeyedAnswer> {
    const { stores, clock } = this.#deps;
    for (;;) {
      const earlier = await stores.read.keyedRequests.find(request.apiKeyId, request.key);
      if (earlier !== null && earlier.fingerprint !== request.fingerprint) throw conflict();
      if (earlier !== null && earlier.answer !== null) return this.#replay(earlier, earlier.answer);
      if (earlier !== null && (await stores.read.realtimeHolds.isOpen(earlier.realtimeId)).isOpen) {
        await clock.sleep(LOOK_EVERY_MS);
        continue;
      }
      begin();
      const run = new KeyedRun(this.#deps, request, earlier, work.render);
      try {
        await work.make(run);
        return { ...run.outcome, isReplay: false, paidRuns: run.paidRuns };
      } catch (error) {
        if (error instanceof Overtaken) continue;
        const kept = await run.failed(error);
        if (kept === null) throw error;
        return { error: kept, isReplay: false, paidRuns: run.paidRuns };
      }
    }
  }

  async #replay(
    { realtimeId, paidRuns }: KeyedRequestRecord,
    answer: NonNullable<KeyedRequestRecord["answer"]>,
  ): Promise<KeyedAnswer> {
    if ("error" in answer) {
      return { error: new ImgbatchError(answer.error.code, answer.error.message), isReplay: true, paidRuns };
    }
    const body = await this.#deps.blobs.read(answerKey(realtimeId));
    if (body !== null && sha256Hex(body) === answer.sha256) return { body, isReplay: true, paidRuns };
    throw new ImgbatchError(
      "BATCH_IMAGE_RESULT_MISSING",
      "The answer with this Idempotency-Key is missing or damaged.",
    );
  }
}

function conflict(): ImgbatchError {
  return new ImgbatchError("REALTIME_IDEMPOTENCY_CONFLICT");
}
