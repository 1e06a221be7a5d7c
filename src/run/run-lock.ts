import { closeSync, openSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { saving } from "../client/saving.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { Clock } from "../kernel/clock.ts";
import { makeDurably } from "./run-directory.ts";

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
 * Works on a run's directory alone: two processes in one directory would write over each other's ledger. The lock is an
 * open exclusive transaction on an empty database, so the system frees it when the process ends, however it ends.
 * Throws `DIRECTORY_IN_USE` when another process has it, `SAVE_FAILED` when the directory cannot be written.
 * Rule: RUN-21.
 */
export async function withRunLock<T>(dir: string, options: LockOptions, work: () => Promise<T>): Promise<T> {
  const { clock, signal, patienceMs = PATIENCE_MS } = options;
  const path = join(dir, LOCK_FILE);
  await saving(dir, () => makeDurably(dir));
  for (let waitedMs = 0; ; waitedMs += POLL_MS) {
    await saving(path, async () => closeSync(openSync(path, "a", 0o644)));
    const release = acquire(path);
    if (release !== null) {
      try {
        return await work();
      } finally {
        release();
      }
    }
    if (waitedMs >= patienceMs) {
      const message = `Another imgbatch is at work in ${dir}: wait until it has ended, or use another directory.`;
      throw new ImgbatchError("DIRECTORY_IN_USE", message);
    }
    await clock.sleep(POLL_MS, signal);
  }
}

/** Null when another process has the lock. */
function acquire(path: string): (() => void) | null {
  const before = identity(path);
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
    return error.code.startsWith("SQLITE_BUSY") || identity(path) !== before ? null : () => {};
  }
  // The owner before may have removed the file that was opened here; a new one may be locked by others already.
  if (identity(path) !== before) {
    lock.close();
    return null;
  }
  return () => {
    rmSync(path, { force: true });
    lock.close();
  };
}

/** What tells a file from another that got its name, and maybe its place on disk, later; null when there is none. */
function identity(path: string): string | null {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? null : `${stats.ino} ${stats.birthtimeNs}`;
}
