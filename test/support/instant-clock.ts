import type { Clock } from "../../src/kernel/clock.ts";

/** A clock whose sleeps are over at once, and are remembered. */
export class InstantClock implements Clock {
  readonly sleepsMs: number[] = [];
  #nowMs: number;

  constructor(startMs = Date.UTC(2030, 0, 2, 3, 4, 5)) {
    this.#nowMs = startMs;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  monotonicMs(): number {
    return this.#nowMs;
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    this.sleepsMs.push(ms);
    this.#nowMs += ms;
    await Promise.resolve();
    signal?.throwIfAborted();
  }
}
