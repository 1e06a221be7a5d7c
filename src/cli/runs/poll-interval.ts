import { SHORTEST_REMOTE_INTERVAL_MS } from "../../client/poll.ts";
import { formatDuration } from "../../kernel/durations.ts";
import type { Output } from "../command-line/command-context.ts";

/**
 * Returns the polling interval in ms. A remote service is polled at most every 10 s: a shorter interval is raised, with a
 * warning. A service on this machine takes any interval.
 */
export function pollInterval(
  askedMs: number | undefined,
  { isLocal }: { isLocal: boolean },
  output: Pick<Output, "warn">,
): number | undefined {
  if (askedMs === undefined || isLocal || askedMs >= SHORTEST_REMOTE_INTERVAL_MS) return askedMs;
  const shortest = formatDuration(SHORTEST_REMOTE_INTERVAL_MS);
  output.warn(
    `warning: --interval ${formatDuration(askedMs)} is too short for a remote service; polling every ${shortest}`,
  );
  return SHORTEST_REMOTE_INTERVAL_MS;
}
