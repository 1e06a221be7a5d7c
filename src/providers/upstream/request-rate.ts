import type { Clock } from "../../kernel/clock.ts";

const MINUTE_MS = 60_000;

/** Lets no more requests start in any minute than an upstream takes. */
export class RequestRate {
  readonly #perMinute: number | null;
  readonly #clock: Clock;
  /** When requests started and will start, in monotonic ms, the earliest first; without those that no longer count. */
  #starts: number[] = [];

  /** `perMinute` null sets no limit. */
  constructor(perMinute: number | null, clock: Clock) {
    this.#perMinute = perMinute;
    this.#clock = clock;
  }

  /**
   * Resolves when a request may start. Rejects with the signal's reason when aborted before: its place in the minute is
   * free again.
   */
  async wait(signal: AbortSignal): Promise<void> {
    if (this.#perMinute === null) return;
    const nowMs = this.#clock.monotonicMs();
    this.#starts = this.#starts.filter((ms) => ms > nowMs - MINUTE_MS);
    const before = this.#starts.at(-this.#perMinute);
    const startMs = before === undefined ? nowMs : before + MINUTE_MS;
    this.#starts = [...this.#starts, startMs].sort((a, b) => a - b);
    if (startMs <= nowMs) return;
    try {
      await this.#clock.sleep(startMs - nowMs, signal);
    } catch (error) {
      this.#starts.splice(this.#starts.indexOf(startMs), 1);
      throw error;
    }
  }
}
