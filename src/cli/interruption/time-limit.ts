import { deadline } from "../../client/poll.ts";
import type { Clock } from "../../kernel/clock.ts";

/** The signal of a command with `--timeout`: aborted by an interruption, or with `TIMEOUT` after `limitMs`. */
export function timeLimit(
  { signal, clock }: { signal: AbortSignal; clock: Clock },
  limitMs: number | undefined,
): { signal: AbortSignal; stop: () => void } {
  if (limitMs === undefined) return { signal, stop: () => {} };
  const limit = deadline(clock, limitMs);
  return { signal: AbortSignal.any([signal, limit.signal]), stop: limit.stop };
}
