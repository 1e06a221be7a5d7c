import type { RetentionTime } from "./records.ts";

/**
 * Checks the clock before anything is deleted by it. `elapsedMs` is the time that has really passed since the last
 * check; it is 0 after a start, because the time that the machine was off is unknown.
 *
 * A jump of more than the retention could delete every image at once. The clock may be wrong, or the machine may have
 * been off for a month, and the two cannot be told apart. So the jump does not count (`aheadMs`) until the clock has
 * advanced by a whole retention after it, over any number of starts. A jump back is subtracted from `aheadMs`.
 */
export function lookAtClock(
  before: RetentionTime,
  look: { nowMs: number; elapsedMs: number },
  retentionMs: number,
): RetentionTime {
  const { nowMs, elapsedMs } = look;
  const jumpMs = nowMs - before.seenMs - elapsedMs;
  if (Math.abs(jumpMs) > retentionMs) {
    return { seenMs: nowMs, aheadMs: Math.max(0, before.aheadMs + jumpMs), jumpedAtMs: nowMs };
  }
  const isProven = nowMs - before.jumpedAtMs >= retentionMs;
  return { ...before, seenMs: nowMs, aheadMs: isProven ? 0 : before.aheadMs };
}
