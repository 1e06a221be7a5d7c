import { SHORTEST_REMOTE_INTERVAL_MS } from "../../client/poll.ts";
import { formatDuration } from "../../kernel/durations.ts";
import type { Output } from "../command-line/command-context.ts";

/**
 * The time between two looks that was asked for, as far as it is fair: a service elsewhere is not asked more often than
 * every 10 s, and a shorter time is lengthened with a warning. On this machine any time will do.
 */
export function pollInterval(
  askedMs: number | undefined,
  { isLocal }: { isLocal: boolean },
  output: Pick<Output, "warn">,
): number | undefined {
  if (askedMs === undefined || isLocal || askedMs >= SHORTEST_REMOTE_INTERVAL_MS) return askedMs;
  const shortest = formatDuration(SHORTEST_REMOTE_INTERVAL_MS);
  output.warn(
    `warning: --interval ${formatDuration(askedMs)} is too short for a service elsewhere; looking every ${shortest}`,
  );
  return SHORTEST_REMOTE_INTERVAL_MS;
}
