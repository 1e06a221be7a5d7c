import { constants } from "node:os";

/** A used-up quota counts as a full disk. SQLite reports the last code when the index of its WAL cannot grow. */
const FULL = new Set(["ENOSPC", "EDQUOT", "SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"]);

/** Whether an error of Node or SQLite means a full disk: nothing is broken, and space may come back. */
export function isDiskFull(error: unknown): boolean {
  return FULL.has(systemCodeOf(error));
}

/**
 * `ENOSPC`, `SQLITE_IOERR_FSYNC` and the like; `unknown` for an error without a code. Node knows no name for a quota
 * that is used up and calls it `UNKNOWN`: its number becomes `EDQUOT`.
 */
export function systemCodeOf(error: unknown): string {
  const { code, errno } = (error ?? {}) as { code?: unknown; errno?: unknown };
  if (typeof errno === "number" && errno === -constants.errno.EDQUOT) return "EDQUOT";
  return typeof code === "string" ? code : "unknown";
}
