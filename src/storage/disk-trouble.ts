import { closeSync, openSync, rmSync, writeSync } from "node:fs";
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

/** The disk failed during a commit: the next start finds all of the transaction, or nothing of it. */
export function perhapsStored(cause: unknown): StorageUnavailable {
  const message = `The service's disk has failed (${systemCodeOf(cause)}): whether this was done is not known until it runs again.`;
  return new StorageUnavailable("unknown-commit", message, cause);
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

/** Larger than any space that a file can take without a new block. */
const PROBE_BYTES = 64 * 1024;

/**
 * Returns the error of a used-up quota behind an error of the database, or null. SQLite reports both a quota and a
 * failing disk as `SQLITE_IOERR_WRITE`, so another file is written beside the database to find out.
 */
export function quotaError(databaseFile: string, error: unknown): Error | null {
  if (systemCodeOf(error) !== "SQLITE_IOERR_WRITE") return null;
  const path = `${databaseFile}.probe`;
  try {
    const file = openSync(path, "w", 0o600);
    try {
      // At a position, as SQLite writes.
      writeSync(file, Buffer.alloc(PROBE_BYTES), 0, PROBE_BYTES, 0);
    } finally {
      closeSync(file);
    }
    return null;
  } catch (cause) {
    return isDiskFull(cause) ? (cause as Error) : null;
  } finally {
    rmSync(path, { force: true });
  }
}
