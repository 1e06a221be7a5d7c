import { closeSync, openSync } from "node:fs";
import Sqlite from "better-sqlite3";
import { isDatabaseDamage } from "../../contract/data-directory.ts";
import { StorageUnavailable } from "../../domain/ports/storage-unavailable.ts";
import type { Clock } from "../../kernel/clock.ts";
import { isDiskFull } from "../../kernel/files/disk-full.ts";
import { notStored, perhapsStored, quotaError } from "../disk-trouble.ts";
import type { SqlDatabase } from "./sql-session.ts";
import { inTransactions, sqliteSession } from "./sqlite-session.ts";

/** Nothing else waits while the database is opened, so SQLite itself may wait for the lock of another process. */
const OPEN_TIMEOUT_MS = 5000;
/** Readers wait only for moments, as when another process repairs the file after a crash. */
const READ_TIMEOUT_MS = 100;
/** Writers never block the process: they try again for a locked database after a pause. */
const BUSY_RETRY_MS = 20;
const BUSY_GIVE_UP_MS = 10_000;

/** A long reader lets the WAL grow. After it has ended, the next commits write the WAL back and cut it to this size. */
const WAL_LIMIT_BYTES = 16 * 1024 * 1024;

/**
 * Opens (or makes) the database file. WAL with full sync: a commit that returned survives a power cut. `onBroken` is
 * called once when the disk fails under the database, or the file is damaged. The state of the disk after a failed sync
 * is unknown, so nothing is written after it, and only a new start, which reads the file again, can go on.
 */
export function openSqlite(
  file: string,
  clock: Clock,
  onBroken: (cause: Error) => void = () => {},
): SqlDatabase {
  // Prompts are in it: a file that SQLite made itself could be read by others. Its companions get the same mode.
  closeSync(openSync(file, "a", 0o600));
  const writing = new Sqlite(file, { timeout: OPEN_TIMEOUT_MS });
  writing.pragma("journal_mode = WAL");
  writing.pragma("synchronous = FULL");
  writing.pragma(`journal_size_limit = ${WAL_LIMIT_BYTES}`);
  writing.pragma("foreign_keys = ON");
  writing.pragma("busy_timeout = 0");
  const openReader = () => {
    const connection = new Sqlite(file, { timeout: READ_TIMEOUT_MS });
    connection.pragma("query_only = ON");
    return connection;
  };
  const reading = openReader();
  let broken: Error | null = null;
  const watch = (error: unknown): unknown => {
    const quota = quotaError(file, error);
    if (quota !== null) return quota;
    if (broken === null && isBroken(error)) {
      broken = error;
      onBroken(error);
    }
    return error;
  };
  const write = inTransactions(writing, "BEGIN IMMEDIATE", watch);
  // A connection of their own: the other reads must not fall into a snapshot, which does not see what is new.
  let snapshots: { connection: Sqlite.Database; read: ReturnType<typeof inTransactions> } | null = null;
  const openSnapshots = () => {
    const connection = openReader();
    return { connection, read: inTransactions(connection, "BEGIN", watch) };
  };
  return {
    reader: sqliteSession(reading, watch),
    transaction: async (work) => {
      for (let waitedMs = 0; ; waitedMs += BUSY_RETRY_MS) {
        try {
          return await write(work, () => {
            if (broken !== null) throw notStored(broken);
          });
        } catch (error) {
          if (isDiskFull(error)) throw notStored(error);
          if (isBroken(error)) throw perhapsStored(error);
          if (!isBusy(error)) throw error;
          if (waitedMs >= BUSY_GIVE_UP_MS) throw stillBusy(error);
          await clock.sleep(BUSY_RETRY_MS);
        }
      }
    },
    snapshot: async (work) => {
      snapshots ??= openSnapshots();
      return snapshots.read(work);
    },
    integrityProblems: () => {
      const rows = reading.pragma("integrity_check") as { integrity_check: string }[];
      return rows.map((row) => row.integrity_check).filter((line) => line !== "ok");
    },
    close: () => {
      snapshots?.connection.close();
      reading.close();
      writing.close();
    },
  };
}

const codeOf = (error: unknown) => (error instanceof Sqlite.SqliteError ? error.code : "");

const isBusy = (error: unknown) => codeOf(error).startsWith("SQLITE_BUSY");

/** The disk failed, or the file is damaged: it is unknown which writes are on the disk. */
function isBroken(error: unknown): error is Error {
  const code = codeOf(error);
  const hasFailed = code.startsWith("SQLITE_IOERR") && code !== "SQLITE_IOERR_NOMEM" && !isDiskFull(error);
  return hasFailed || isDatabaseDamage(error);
}

function stillBusy(cause: unknown): StorageUnavailable {
  const message = "Another process has kept the database of the service locked for too long.";
  return new StorageUnavailable("busy", message, cause);
}
