import PQueue from "p-queue";
import type { Clock } from "../kernel/clock.ts";

/** Looks under way at once, and the pause from the beginning of one to the next: half of what a key may usually ask. */
const AT_ONCE = 4;
const GAP_MS = 200;

/**
 * What the pollers of several batches of one service share. Each keeps its own pace; together they do not make a storm,
 * and when the service wants to be left alone, all of them do.
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

  /** Nobody looks for so long. */
  keepQuiet(ms: number): void {
    this.#quietUntilMs = Math.max(this.#quietUntilMs, this.#clock.nowMs() + ms);
  }

  /** Does the look when its turn comes. Rejects with the signal's reason. */
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
