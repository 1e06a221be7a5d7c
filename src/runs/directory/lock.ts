import { accessSync, closeSync, constants, openSync, rmdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import Sqlite from "better-sqlite3";
import { isSystemError, saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { fileIdentity } from "../../kernel/files/file-identity.ts";
import { makeDurably } from "./claim.ts";

/** Empty, and only there while somebody works, or after a crash. */
const LOCK_FILE = ".imgbatch.lock";
/** A process that was just killed may need a moment to be gone. */
const PATIENCE_MS = 2000;
const POLL_MS = 50;

export interface LockOptions {
  clock: Clock;
  signal?: AbortSignal | undefined;
  /** How long to wait for the other process, in ms; default 2000. */
  patienceMs?: number;
}

/**
 * Works on a run's directory alone: two processes in one directory would write over each other's run state. The lock is an
 * open exclusive transaction on an empty database, so the system frees it when the process ends, however it ends.
 * A directory that cannot be written needs no lock, and one that was made here and stays empty is removed.
 * Throws `DIRECTORY_IN_USE` when another process has it, `SAVE_FAILED` when the directory cannot be made.
 */
export async function withRunLock<T>(dir: string, options: LockOptions, work: () => Promise<T>): Promise<T> {
  const { clock, signal, patienceMs = PATIENCE_MS } = options;
  const path = join(dir, LOCK_FILE);
  if (isReadOnly(dir)) return work();
  let made: string | undefined;
  for (let waitedMs = 0; ; waitedMs += POLL_MS) {
    // Again each time: the owner before may have removed a directory that it had made for nothing.
    made = (await saving(dir, () => makeDurably(dir))) ?? made;
    await saving(path, async () => closeSync(openSync(path, "a", 0o644)));
    const release = acquire(path);
    if (release !== null) {
      try {
        return await work();
      } finally {
        release();
        if (made !== undefined) removeEmpty(dir, made);
      }
    }
    if (waitedMs >= patienceMs) {
      const message = `Another imgbatch is at work in ${dir}: wait until it has ended, or use another directory.`;
      throw new ImgbatchError("DIRECTORY_IN_USE", message);
    }
    await clock.sleep(POLL_MS, signal);
  }
}

/** Where nobody can write, nobody writes over anything; what has to be written fails there by itself. */
function isReadOnly(dir: string): boolean {
  try {
    accessSync(dir, constants.W_OK);
    return false;
  } catch (error) {
    return isSystemError(error) && ["EROFS", "EACCES", "EPERM"].includes(error.code);
  }
}

/** Removes directories that were made for work that left nothing in them, from `dir` up to `first`. */
function removeEmpty(dir: string, first: string): void {
  for (let at = dir; at.length >= first.length; at = dirname(at)) {
    try {
      rmdirSync(at);
    } catch {
      return;
    }
  }
}

/** Null when another process has the lock. */
function acquire(path: string): (() => void) | null {
  const before = fileIdentity(path);
  if (before === null) return null;
  const lock = new Sqlite(path, { timeout: 0 });
  try {
    // Nothing is ever written, so nothing needs a journal beside it.
    lock.pragma("journal_mode = MEMORY");
    lock.exec("BEGIN EXCLUSIVE");
  } catch (error) {
    lock.close();
    if (!(error instanceof Sqlite.SqliteError)) throw error;
    // A file system without locks is no reason to do nothing at all.
    return error.code.startsWith("SQLITE_BUSY") || fileIdentity(path) !== before ? null : () => {};
  }
  // The owner before may have removed the file that was opened here; a new one may be locked by others already.
  if (fileIdentity(path) !== before) {
    lock.close();
    return null;
  }
  return () => {
    // Somebody may have removed it, and another process may have made its own.
    if (fileIdentity(path) === before) rmSync(path, { force: true });
    lock.close();
  };
}
