import { deadline, SHORTEST_REMOTE_INTERVAL_MS } from "../client/poll.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { isTerminal } from "../contract/statuses.ts";
import type { Clock } from "../kernel/clock.ts";
import { formatDuration } from "../kernel/durations.ts";
import type { Output } from "./command.ts";
import type { ServiceConnection } from "./connect/connection.ts";

/** Wraps an output and remembers from its progress events which batches have ended. */
export function trackEnded(output: Output): { output: Output; hasEnded: (id: string) => boolean } {
  const ended = new Set<string>();
  const watched: Output = {
    ...output,
    event: (event) => {
      if (event.event === "progress" && isTerminal(event.status)) ended.add(event.batch_id);
      output.event(event);
    },
  };
  return { output: watched, hasEnded: (id) => ended.has(id) };
}

const REASONS: Readonly<Record<string, (error: Error) => string>> = {
  INTERRUPTED: () => "Interrupted",
  TERMINATED: () => "Terminated",
  TIMEOUT: ({ message }) => message.replace(/[;:.].*$/s, ""),
};

/** The words that begin a message about a stop (signal or time limit); null for any other error. */
export function stopReason(error: unknown): string | null {
  if (!(error instanceof ImgbatchError) || !Object.hasOwn(REASONS, error.code)) return null;
  return REASONS[error.code]?.(error) ?? null;
}

/** Whether the reason of a stop is a signal, and not a time limit. */
export function isInterruption(error: unknown): boolean {
  return stopReason(error) !== null && (error as ImgbatchError).code !== "TIMEOUT";
}

/** Adds to a stop (signal or time limit) what happens to the batches. Returns any other error unchanged. */
export function explainStop<Thrown>(
  error: Thrown,
  kind: ServiceConnection["kind"],
  batchIds: readonly string[],
): Thrown | ImgbatchError {
  const why = stopReason(error);
  if (why === null || !(error instanceof ImgbatchError) || batchIds.length === 0) return error;
  const [verb, be] = batchIds.length === 1 ? ["goes", "is"] : ["go", "are"];
  // The service of another process may be a permanent one, or may end with that process's command.
  const fate = {
    remote: `${verb} on`,
    running: `${verb} on while its service runs`,
    embedded: `${be} paused; run the same command to continue`,
  }[kind];
  return new ImgbatchError(error.code, `${why}; ${batchIds.join(", ")} ${fate}.`);
}

/** The signal of a command with `--timeout`: aborted by an interruption, or with `TIMEOUT` after `limitMs`. */
export function timeLimit(
  { signal, clock }: { signal: AbortSignal; clock: Clock },
  limitMs: number | undefined,
): { signal: AbortSignal; stop: () => void } {
  if (limitMs === undefined) return { signal, stop: () => {} };
  const limit = deadline(clock, limitMs);
  return { signal: AbortSignal.any([signal, limit.signal]), stop: limit.stop };
}

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
