import { ImgbatchError } from "../../contract/errors.ts";
import type { ServiceConnection } from "../service/connection.ts";

const REASONS: Readonly<Record<string, string>> = {
  INTERRUPTED: "Interrupted",
  TERMINATED: "Terminated",
  TIMEOUT: "Time is up",
};

/** How a sentence about a stop (signal, time) begins; null for any other error. */
export function stopReason(error: unknown): string | null {
  if (!(error instanceof ImgbatchError) || !Object.hasOwn(REASONS, error.code)) return null;
  return REASONS[error.code] ?? null;
}

/** Says of a stop (signal, time) what becomes of the batches, and of the rest nothing. */
export function explainStop<Thrown>(
  error: Thrown,
  kind: ServiceConnection["kind"],
  batchIds: readonly string[],
): Thrown | ImgbatchError {
  const why = stopReason(error);
  if (why === null || !(error instanceof ImgbatchError) || batchIds.length === 0) return error;
  const [verb, resume] = batchIds.length === 1 ? ["goes", "runs"] : ["go", "run"];
  // The service of another process may be one that stays, or end with that process's command.
  const fate = {
    remote: `${verb} on`,
    shared: `${verb} on while its service runs`,
    own: `${resume} on when you call this again`,
  }[kind];
  return new ImgbatchError(error.code, `${why}; ${batchIds.join(", ")} ${fate}.`);
}
