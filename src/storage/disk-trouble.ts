import { ImgbatchError } from "../contract/errors.ts";
import { CommitUnknown } from "../domain/ports/stores.ts";

/** What a file system says when nothing fits any more. */
const FULL = new Set(["ENOSPC", "EDQUOT", "SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"]);

/**
 * What a client is told when the service cannot store something now: it may ask again. Says nothing about the machine
 * but the bare code of the operating system.
 * Rule: DISK-1.
 */
export function notStored(cause: unknown): ImgbatchError {
  const code = codeOf(cause);
  const what = FULL.has(code)
    ? "The service's disk is full."
    : `The service cannot store data now (${code}).`;
  return new ImgbatchError("BATCH_IMAGE_QUEUE_FAILED", what, { cause });
}

/** The same when the disk failed in the middle of a commit: the next start finds it whole, or not at all. */
export function perhapsStored(cause: unknown): CommitUnknown {
  const message = `The service's disk has failed (${codeOf(cause)}): whether this was done is not known until it runs again.`;
  return new CommitUnknown(message, cause);
}

/** What says that the disk or its rights are at fault, not the program. */
const OF_THE_DISK =
  /^(ENOSPC|EDQUOT|EIO|EROFS|EACCES|EPERM|EMFILE|ENFILE|SQLITE_(FULL|IOERR\w*|READONLY\w*|CANTOPEN\w*|PERM))$/;

/**
 * What ends a service whose data directory cannot be used: names the directory and the cause. Any other error as it is.
 * Rules: DISK-3, DISK-6.
 */
export function storageFailure<E>(directory: string, error: E): E | ImgbatchError {
  const isOurs = error instanceof ImgbatchError && error.code === "BATCH_IMAGE_QUEUE_FAILED";
  const cause = isOurs ? error.cause : error;
  if (!(cause instanceof Error) || !OF_THE_DISK.test(codeOf(cause))) return error;
  const message = `The data directory ${directory} cannot be used: ${cause.message} (${codeOf(cause)}).`;
  return new ImgbatchError("STORAGE_FAILED", message, { cause });
}

/** `ENOSPC`, `SQLITE_IOERR_FSYNC` and the like; `unknown` for what has no code. */
export function codeOf(error: unknown): string {
  const { code } = error as { code?: unknown };
  return typeof code === "string" ? code : "unknown";
}
