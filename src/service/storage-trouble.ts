import { ImgbatchError } from "../contract/errors.ts";
import { StorageUnavailable } from "../domain/ports/storage-unavailable.ts";

/** Classes of SQLSTATE that a change of the command or of the server's settings solves (PostgreSQL, appendix A). */
const REFUSALS = /^(28|3D|42501)/;

/** Returns the error for a shared database that cannot be opened; `name` is its URL without secrets. */
export function unreachable(name: string, cause: unknown): unknown {
  if (cause instanceof ImgbatchError) return cause;
  const first = cause instanceof StorageUnavailable ? (cause.cause ?? cause) : cause;
  const { code = "", message = String(first) } = first as { code?: string; message?: string };
  if (REFUSALS.test(code)) {
    return new ImgbatchError("INVALID_CONFIG", `The database ${name} refuses: ${message}.`, {
      cause,
      advice: "check PGUSER and PGPASSWORD (or IMGBATCH_DATABASE_URL), and that the database exists",
    });
  }
  const reason = code === "" ? message : code;
  return new ImgbatchError("NETWORK", `The database ${name} cannot be reached: ${reason}.`, {
    cause,
    advice: "check that it runs, its address and the network, then run the same command again",
  });
}
