import { type RequestRate, tooManyAtOnce, tooManyInMinute } from "../../domain/request-rate.ts";
import type { Clock } from "../../kernel/clock.ts";
import { PerKeyCount } from "./per-key-count.ts";

const WINDOW_MS = 60_000;

/**
 * Limits the real-time requests that a key may have running in this process, and may begin within any minute. 0 switches a limit off.
 * A refused request does not count.
 */
export class RequestLimits {
  readonly #perMinute: number;
  readonly #atOnce: number;
  readonly #clock: Clock;
  readonly #slots = new PerKeyCount();
  /** The start times of the requests of the last minute, oldest first. */
  readonly #begun = new Map<string, number[]>();

  constructor(limits: RequestRate, clock: Clock) {
    this.#perMinute = limits.requestsPerMinute;
    this.#atOnce = limits.concurrentRequests;
    this.#clock = clock;
  }

  /** Begins a request. Returns the function to call when it has ended. Throws `RATE_LIMITED`. */
  begin(keyId: string): () => void {
    this.#requireSlot(keyId);
    this.count(keyId);
    return this.#slots.take(keyId);
  }

  /** Counts a request of which it is not known yet whether anything runs for it. Throws `RATE_LIMITED`. */
  count(keyId: string): void {
    if (this.#perMinute > 0) this.#note(keyId);
  }

  /** Begins the work of a counted request. Returns the function to call when it has ended. Throws `RATE_LIMITED`. */
  take(keyId: string): () => void {
    this.#requireSlot(keyId);
    return this.#slots.take(keyId);
  }

  #requireSlot(keyId: string): void {
    const running = this.#slots.takenBy(keyId);
    if (this.#atOnce === 0 || running < this.#atOnce) return;
    throw tooManyAtOnce(running, this.#atOnce);
  }

  #note(keyId: string): void {
    const nowMs = this.#clock.nowMs();
    // A clock that was set back leaves times in the future: they do not count.
    const begun = (this.#begun.get(keyId) ?? []).filter((ms) => ms > nowMs - WINDOW_MS && ms <= nowMs);
    this.#begun.set(keyId, begun);
    const oldest = begun[0];
    if (oldest !== undefined && begun.length >= this.#perMinute) {
      throw tooManyInMinute(this.#perMinute, oldest, nowMs);
    }
    begun.push(nowMs);
  }
}
