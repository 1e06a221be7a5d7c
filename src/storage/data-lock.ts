import { closeSync, existsSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import Sqlite from "better-sqlite3";
import { DATA_FILES, parseServerFile, type ServerFile } from "../contract/data-directory.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { Clock } from "../kernel/clock.ts";
import { fileIdentity, makeDirectory } from "../kernel/files.ts";
import { systemCodeOf } from "../kernel/system-errors.ts";

const OWNER_PATIENCE_MS = 2000;
const OWNER_POLL_MS = 50;

/**
 * Makes this process the owner of a data directory. The lock is an open exclusive transaction on a database of its own:
 * the operating system frees it the moment the process ends, however it ends. The lock file is never removed here. When
 * it was removed from outside, an owner may hold a lock that no other process sees: then no other process may have the
 * database itself open. When it was replaced, the owner notices and writes no more (see `openSqlite`). Returns the function that frees the lock.
 * Throws `DATA_DIRECTORY_IN_USE`, naming the owner, when another process has it.
 */
function acquireDataLock(directory: string): () => void {
  const file = join(directory, DATA_FILES.lock);
  const isThere = (name: string) => existsSync(join(directory, name));
  // Every owner leaves its lock and its credentials; a directory that was only prepared has neither.
  const isRemoved = !isThere(DATA_FILES.lock) && isThere(DATA_FILES.credentials);
  // Before there is a new lock file, which the owner would take for a replacement of its own.
  if (isRemoved && isOpenElsewhere(join(directory, DATA_FILES.database))) throw inUse(directory);
  closeSync(openSync(file, "a", 0o600));
  const before = fileIdentity(file);
  const lock = new Sqlite(file, { timeout: 0 });
  try {
    // The opened file may have been removed since: no other process would see a lock on it.
    if (!canBeOwned(lock) || fileIdentity(file) !== before) throw inUse(directory);
    // A killed owner leaves a stale server.json.
    rmSync(join(directory, DATA_FILES.server), { force: true });
  } catch (error) {
    lock.close();
    throw error;
  }
  return () => lock.close();
}

/** Whether a process owns the data directory now. Takes nothing and leaves nothing behind. */
export function isDataDirectoryLocked(directory: string): boolean {
  return isOpenElsewhere(join(directory, DATA_FILES.lock));
}

/** Whether any connection, of whichever process, has the database open. */
function isOpenElsewhere(file: string): boolean {
  if (!existsSync(file)) return false;
  const database = new Sqlite(file, { timeout: 0, fileMustExist: true });
  try {
    database.pragma("locking_mode = EXCLUSIVE");
    return !canBeOwned(database);
  } finally {
    database.close();
  }
}

/** Begins an exclusive transaction, unless another connection has the file. */
function canBeOwned(database: Sqlite.Database): boolean {
  try {
    database.exec("BEGIN EXCLUSIVE");
    return true;
  } catch (error) {
    if (error instanceof Sqlite.SqliteError && error.code.startsWith("SQLITE_BUSY")) return false;
    throw error;
  }
}

function inUse(directory: string): ImgbatchError {
  const owner = readServerFile(directory);
  const who = owner ? ` (pid ${owner.pid}, ${owner.url})` : "";
  return new ImgbatchError("DATA_DIRECTORY_IN_USE", `${directory} is in use by another imgbatch${who}.`);
}

/** Like `acquireDataLock`, but waits a moment for an owner that has just started and not written its facts yet. */
export async function acquireDataLockPatiently(directory: string, clock: Clock): Promise<() => void> {
  const startMs = clock.monotonicMs();
  for (;;) {
    try {
      return acquireDataLock(directory);
    } catch (error) {
      const isOwned = error instanceof ImgbatchError && error.code === "DATA_DIRECTORY_IN_USE";
      const isOver = clock.monotonicMs() - startMs >= OWNER_PATIENCE_MS;
      if (!isOwned || readServerFile(directory) || isOver) throw error;
      await clock.sleep(OWNER_POLL_MS);
    }
  }
}

/** Reads the facts that the running service wrote about itself; null when there is nothing readable. */
function readServerFile(directory: string): ServerFile | null {
  try {
    return parseServerFile(readFileSync(join(directory, DATA_FILES.server), "utf8"));
  } catch {
    return null;
  }
}

const FILE_POLL_MS = 100;

/**
 * Waits until no other process of this machine holds the lock of a file, and takes it. The file is made for that, and its
 * directory. Returns the function that removes the file and frees the lock; the operating system frees it when the process
 * ends, however it ends. Throws system errors, those of SQLite, and the signal's reason.
 */
export async function lockFile(file: string, clock: Clock, signal: AbortSignal): Promise<() => void> {
  await makeDirectory(dirname(file), 0o700);
  for (;;) {
    try {
      writeFileSync(file, "", { flag: "wx", mode: 0o600 });
    } catch (error) {
      if (systemCodeOf(error) !== "EEXIST") throw error;
    }
    const before = fileIdentity(file);
    const lock = new Sqlite(file, { timeout: 0 });
    const free = () => {
      try {
        rmSync(file, { force: true });
      } catch {
        // On Windows an open file stays. The next owner takes it as it is.
      }
      lock.close();
    };
    let isOurs = false;
    try {
      // The opened file may have been removed since: no other process would see a lock on it.
      isOurs = canBeOwned(lock) && fileIdentity(file) === before;
    } finally {
      if (!isOurs) lock.close();
    }
    if (isOurs) return free;
    await clock.sleep(FILE_POLL_MS, signal);
  }
}
