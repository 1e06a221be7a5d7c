import type { Clock } from "../kernel/clock.ts";

const MINUTE_MS = 60_000;

/**
 * Returns a function that resolves for at most `perMinute` callers in any minute, in the order of their calls. Undefined
 * means no limit. Rejects with the reason of the caller's signal.
 */
export function createRateLimiter(
  perMinute: number | undefined,
  clock: Clock,
): (signal?: AbortSignal) => Promise<void> {
  if (perMinute === undefined) return async () => {};
  const passedAtMs: number[] = [];
  let last: Promise<void> = Promise.resolve();
  const pass = async (signal?: AbortSignal) => {
    signal?.throwIfAborted();
    const [earliest] = passedAtMs;
    if (earliest !== undefined && passedAtMs.length >= perMinute) {
      const waitMs = Math.min(MINUTE_MS, earliest + MINUTE_MS - clock.nowMs());
      if (waitMs > 0) await clock.sleep(waitMs, signal);
      passedAtMs.shift();
    }
    passedAtMs.push(clock.nowMs());
  };
  return (signal) => {
    const passed = last.then(() => pass(signal));
    last = passed.catch(() => {});
    return passed;
  };
}
