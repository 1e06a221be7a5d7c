import { accessSync, closeSync, constants, openSync, rmdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Batch } from "../../client/batch.ts";
import { isSystemError, saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { fileIdentity } from "../../kernel/files/file-identity.ts";
import { makeDurably } from "./claim.ts";
import { readRunState, recordBatch, writeRunState } from "./run-state.ts";

/** Always empty. Exists while a process works in the directory, or after a crash. */
const LOCK_FILE = ".imgbatch.lock";
/** A process that was just killed may need a moment to end. */
const PATIENCE_MS = 2000;
const POLL_MS = 50;

interface LockOptions {
  clock: Clock;
  signal?: AbortSignal | undefined;
  /** How long to wait for the other process, in ms; default 2000. */
  patienceMs?: number;
}

/**
 * Does work in a run's directory alone: two processes would overwrite each other's run state. The lock is an open
 * exclusive transaction on an empty database, so the system frees it whenever the process ends, even after a kill. It
 * also holds between containers that share the directory, which a socket would not. A directory that cannot be written
 * needs no lock. A directory that was made here and stays empty is removed.
 * Throws `DIRECTORY_IN_USE` when another process has it, `SAVE_FAILED` when the directory cannot be made.
 */
export async function withRunLock<T>(dir: string, options: LockOptions, work: () => Promise<T>): Promise<T> {
  const { clock, signal, patienceMs = PATIENCE_MS } = options;
  const path = join(dir, LOCK_FILE);
  if (isReadOnly(dir)) return work();
  let made: string | undefined;
  for (let waitedMs = 0; ; waitedMs += POLL_MS) {
    // Made again each time: the previous owner may have removed a directory that stayed empty.
    made = (await saving(dir, () => makeDurably(dir))) ?? made;
    await saving(path, async () => closeSync(openSync(path, "a", 0o644)));
    const release = await acquire(path);
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

/** In a read-only directory nothing can be overwritten. Work that has to write fails by itself. */
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
async function acquire(path: string): Promise<(() => void) | null> {
  // Loaded when a lock is taken: most commands take none.
  const { default: Sqlite } = await import("better-sqlite3");
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
    // On a file system without locks the work is done without one.
    return error.code.startsWith("SQLITE_BUSY") || fileIdentity(path) !== before ? null : () => {};
  }
  // The previous owner may have removed the opened file, and another process may have locked a new one.
  if (fileIdentity(path) !== before) {
    lock.close();
    return null;
  }
  return () => {
    // The file may have been removed, and another process may have made a new one.
    if (fileIdentity(path) === before) rmSync(path, { force: true });
    lock.close();
  };
}

/**
 * Writes the current state of its batches into a run's state. Does nothing while another process works on the run, since
 * that process keeps the run state.
 */
export async function recordInRunState(dir: string, batches: readonly Batch[], clock: Clock): Promise<void> {
  const byId = new Map(batches.map((batch) => [batch.id, batch]));
  try {
    await withRunLock(dir, { clock, patienceMs: 0 }, async () => {
      // Read again: it may have changed while this process waited for the batches.
      const runState = await readRunState(dir);
      if (runState === null) return;
      for (const entry of runState.batches) {
        const batch = entry.id === null ? undefined : byId.get(entry.id);
        if (batch !== undefined) recordBatch(entry, batch);
      }
      await writeRunState(dir, runState);
    });
  } catch (error) {
    if (!(error instanceof ImgbatchError) || error.code !== "DIRECTORY_IN_USE") throw error;
  }
}
