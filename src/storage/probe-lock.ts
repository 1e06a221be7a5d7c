import { existsSync } from "node:fs";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { DATA_FILES } from "../contract/data-directory.ts";

/** Whether a process owns the data directory now. Takes nothing and leaves nothing behind. */
export function isDataDirectoryLocked(directory: string): boolean {
  const file = join(directory, DATA_FILES.lock);
  if (!existsSync(file)) return false;
  const lock = new Sqlite(file, { timeout: 0, fileMustExist: true });
  try {
    lock.exec("BEGIN EXCLUSIVE; ROLLBACK");
    return false;
  } catch (error) {
    if (error instanceof Sqlite.SqliteError && error.code.startsWith("SQLITE_BUSY")) return true;
    throw error;
  } finally {
    lock.close();
  }
}
