import { ImgbatchError } from "../contract/errors.ts";
import type { Clock } from "../kernel/clock.ts";

const WINDOW_MS = 60_000;
/** Where the configuration sets no number: for callers from other machines only. */
const REMOTE_DEFAULT = 30;

/**
 * Counts wrong keys by address, a minute at a time, so that nobody can guess keys quickly. A valid key is never
 * stopped by it. `perMinute` 0 means 30 for other machines, and no limit on this one.
 * Rule: AUTH-5.
 */
export class FailedAuthLimit {
  readonly #perMinute: number;
  readonly #clock: Clock;
  readonly #failures = new Map<string, number>();
  #windowStartMs = 0;

  constructor(perMinute: number, clock: Clock) {
    this.#perMinute = perMinute;
    this.#clock = clock;
  }

  /** Notes a wrong key. Throws `RATE_LIMITED` when the address has shown too many in this minute. */
  note(address: string): void {
    const limit = this.#perMinute > 0 ? this.#perMinute : isLoopback(address) ? null : REMOTE_DEFAULT;
    if (limit === null) return;
    const nowMs = this.#clock.nowMs();
    const ageMs = nowMs - this.#windowStartMs;
    // A clock that was set back begins a new minute, too.
    if (ageMs < 0 || ageMs >= WINDOW_MS) {
      this.#failures.clear();
      this.#windowStartMs = nowMs;
    }
    const failures = (this.#failures.get(address) ?? 0) + 1;
    this.#failures.set(address, failures);
    if (failures <= limit) return;
    const retryAfterMs = Math.max(1, this.#windowStartMs + WINDOW_MS - nowMs);
    throw new ImgbatchError("RATE_LIMITED", "Too many wrong keys from this address.", { retryAfterMs });
  }
}

function isLoopback(address: string): boolean {
  return address === "::1" || address.replace(/^::ffff:/, "").startsWith("127.");
}
