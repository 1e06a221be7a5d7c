import { ImgbatchError } from "../../contract/errors.ts";
import type { ServiceConnection } from "../service/connection.ts";

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
    shared: `${verb} on while its service runs`,
    own: `${be} paused; run the same command to continue`,
  }[kind];
  return new ImgbatchError(error.code, `${why}; ${batchIds.join(", ")} ${fate}.`);
}
