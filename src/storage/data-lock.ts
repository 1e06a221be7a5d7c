import { closeSync, openSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { DATA_FILES, type ServerFile, serverFileSchema } from "../contract/data-directory.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { Clock } from "../kernel/clock.ts";

const OWNER_PATIENCE_MS = 2000;
const OWNER_POLL_MS = 50;

/**
 * Makes this process the owner of a data directory. The lock is an open exclusive transaction on a database of its own:
 * the operating system frees it the moment the process ends, however it ends. Answers the function that frees it.
 * Throws `DATA_DIRECTORY_IN_USE`, naming the owner, when another process has it.
 * Rule: DATA-1.
 */
function acquireDataLock(directory: string): () => void {
  const file = join(directory, DATA_FILES.lock);
  closeSync(openSync(file, "a", 0o600));
  const lock = new Sqlite(file, { timeout: 0 });
  try {
    lock.exec("BEGIN EXCLUSIVE");
  } catch (error) {
    lock.close();
    if (!(error instanceof Sqlite.SqliteError) || !error.code.startsWith("SQLITE_BUSY")) throw error;
    const owner = readServerFile(directory);
    const who = owner ? ` (pid ${owner.pid}, ${owner.url})` : "";
    throw new ImgbatchError("DATA_DIRECTORY_IN_USE", `${directory} is in use by another imgbatch${who}.`);
  }
  // What an owner that was killed wrote about itself is not true of this one.
  rmSync(join(directory, DATA_FILES.server), { force: true });
  return () => lock.close();
}

/** Like `acquireDataLock`, but waits a moment for an owner that has just started to say who it is. */
export async function acquireDataLockPatiently(directory: string, clock: Clock): Promise<() => void> {
  for (let waitedMs = 0; ; waitedMs += OWNER_POLL_MS) {
    try {
      return acquireDataLock(directory);
    } catch (error) {
      const isOwned = error instanceof ImgbatchError && error.code === "DATA_DIRECTORY_IN_USE";
      if (!isOwned || readServerFile(directory) || waitedMs >= OWNER_PATIENCE_MS) throw error;
      await clock.sleep(OWNER_POLL_MS);
    }
  }
}

/** What the running service wrote about itself; null when there is nothing readable. */
function readServerFile(directory: string): ServerFile | null {
  try {
    return serverFileSchema.parse(JSON.parse(readFileSync(join(directory, DATA_FILES.server), "utf8")));
  } catch {
    return null;
  }
}
