import type { Clock } from "../../kernel/clock.ts";

const MINUTE_MS = 60_000;

/** Lets no more requests start in any minute than an upstream takes. */
export class RequestRate {
  readonly #perMinute: number | null;
  readonly #clock: Clock;
  /** When the last requests started, in monotonic ms, the oldest first; at most as many as fit a minute. */
  readonly #starts: number[] = [];

  /** `perMinute` null sets no limit. */
  constructor(perMinute: number | null, clock: Clock) {
    this.#perMinute = perMinute;
    this.#clock = clock;
  }

  /** Resolves when a request may start. Rejects with the signal's reason when aborted before. */
  async wait(signal: AbortSignal): Promise<void> {
    if (this.#perMinute === null) return;
    const nowMs = this.#clock.monotonicMs();
    const oldest = this.#starts.length < this.#perMinute ? undefined : this.#starts.shift();
    const startMs = oldest === undefined ? nowMs : Math.max(nowMs, oldest + MINUTE_MS);
    this.#starts.push(startMs);
    if (startMs > nowMs) await this.#clock.sleep(startMs - nowMs, signal);
  }
}
