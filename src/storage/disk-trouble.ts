import { join } from "node:path";
import { DATA_FILES } from "../contract/data-directory.ts";
import { ImgbatchError, isDatabaseDamage } from "../contract/errors.ts";
import { StorageUnavailable } from "../domain/ports/blob-store.ts";
import { isDiskFull, systemCodeOf } from "../kernel/system-errors.ts";

/** Nothing was stored: the disk is full, or it refused. */
export function notStored(cause: unknown): StorageUnavailable {
  if (cause instanceof StorageUnavailable) return cause;
  if (isDiskFull(cause)) return new StorageUnavailable("full", "The service's disk is full.", cause);
  const message = `The service cannot store data now (${systemCodeOf(cause)}).`;
  return new StorageUnavailable("broken", message, cause);
}

/** Codes for which the disk or its rights are at fault, not the program. */
const OF_THE_DISK = /^(EIO|EROFS|EACCES|EPERM|EMFILE|ENFILE|SQLITE_(IOERR\w*|READONLY\w*|CANTOPEN\w*|PERM))$/;

/**
 * Returns the error that ends a service whose data directory cannot be used: `STORAGE_FAILED`, which names the cause
 * and the directory, or the damaged file in it. Returns any other error as it is.
 */
export function storageFailure<E>(directory: string, error: E): E | ImgbatchError {
  const cause = error instanceof StorageUnavailable ? error.cause : error;
  if (!(cause instanceof Error)) return error;
  if (isDatabaseDamage(cause)) return damaged(join(directory, DATA_FILES.database), cause);
  const code = systemCodeOf(cause);
  if (!isDiskFull(cause) && !OF_THE_DISK.test(code)) return error;
  const message = `The data directory ${directory} cannot be used: ${cause.message} (${code}).`;
  return new ImgbatchError("STORAGE_FAILED", message, { cause });
}

function damaged(file: string, cause: Error): ImgbatchError {
  const message = `${file} is damaged: ${cause.message}. Put a backup of the data directory in place.`;
  return new ImgbatchError("STORAGE_FAILED", message, { cause });
}
