import type { RetentionTime } from "./records.ts";

/**
 * Looks at the clock before anything is deleted by it. `elapsedMs` is how far it should have gone since the last look;
 * 0 after a start, since nobody knows how long the machine was off.
 *
 * A jump of more than the retention is one that could delete every image at once: a wrong clock, or a machine that was
 * off for a month. Nobody can tell which, so the jump does not count (`aheadMs`) until the clock has gone on
 * for a whole retention after it, over any number of starts. By then everything from before has had its time. A jump
 * back takes away what an earlier jump forward added.
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
