import PQueue from "p-queue";
import type { Clock } from "../kernel/clock.ts";

/** Requests under way at once, and the pause between their starts: half of the usual limit of a key. */
const AT_ONCE = 4;
const GAP_MS = 200;

/**
 * Shared by the pollers of several batches of one service. Each poller keeps its own interval; together they stay below
 * the limit of the service. When the service asks one of them to wait, all wait.
 */
export class PollLimiter {
  readonly #clock: Clock;
  readonly #gapMs: number;
  readonly #queue = new PQueue({ concurrency: AT_ONCE });
  #nextMs = 0;
  #quietUntilMs = 0;

  constructor(clock: Clock, gapMs = GAP_MS) {
    this.#clock = clock;
    this.#gapMs = gapMs;
  }

  /** Lets no poller look for this time. */
  keepQuiet(ms: number): void {
    this.#quietUntilMs = Math.max(this.#quietUntilMs, this.#clock.nowMs() + ms);
  }

  /** Does the look as soon as the limit allows. Rejects with the signal's reason. */
  take<T>(look: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.#queue.add(async () => {
      for (let waitMs = this.#waitMs(); waitMs > 0; waitMs = this.#waitMs())
        await this.#clock.sleep(waitMs, signal);
      signal?.throwIfAborted();
      this.#nextMs = this.#clock.nowMs() + this.#gapMs;
      return look();
    });
  }

  #waitMs(): number {
    return Math.max(this.#nextMs, this.#quietUntilMs) - this.#clock.nowMs();
  }
}
