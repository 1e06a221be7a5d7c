import { closeSync, openSync } from "node:fs";
import Sqlite from "better-sqlite3";
import {
  type Compilable,
  DummyDriver,
  Kysely,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from "kysely";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { notStored, perhapsStored } from "../disk-trouble.ts";
import type { Database } from "../schema.ts";
import type { SqlDatabase, SqlSession } from "./sql-session.ts";

/** While the database is opened nothing else waits, so a lock of another process can be waited for in one go. */
const OPEN_TIMEOUT_MS = 5000;
/** Readers wait only for moments, as when another process repairs the file after a crash. */
const READ_TIMEOUT_MS = 100;
/** Writers never block the process: a lock that another process holds is asked for again after a pause. */
const BUSY_RETRY_MS = 20;
const BUSY_GIVE_UP_MS = 10_000;

/**
 * Opens (or makes) the database file. WAL with full sync: a commit that returned survives a power cut. `onBroken` is
 * told once when the disk fails under the database: what a failed sync left on the disk is unknown, so nothing is
 * written after it, and only a new start, which reads the file afresh, can go on.
 * Rules: DISK-3, BUSY-1, BUSY-2.
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
  writing.pragma("foreign_keys = ON");
  writing.pragma("busy_timeout = 0");
  const reading = new Sqlite(file, { timeout: READ_TIMEOUT_MS });
  reading.pragma("query_only = ON");
  let broken: Error | null = null;
  const watched = <T>(work: () => T): T => {
    try {
      return work();
    } catch (error) {
      if (broken === null && isBroken(error)) {
        broken = error;
        onBroken(error);
      }
      throw error;
    }
  };
  const writer = sqliteSession(writing);
  return {
    writer,
    reader: sqliteSession(reading, watched),
    transaction: async (work) => {
      const attempt = writing.transaction(() => work(writer)).immediate;
      for (let waitedMs = 0; ; waitedMs += BUSY_RETRY_MS) {
        if (broken !== null) throw notStored(broken);
        try {
          return watched(attempt);
        } catch (error) {
          if (isFull(error)) throw notStored(error);
          if (isBroken(error)) throw perhapsStored(error);
          if (!isBusy(error)) throw error;
          if (waitedMs >= BUSY_GIVE_UP_MS) throw stillBusy(error);
          await clock.sleep(BUSY_RETRY_MS);
        }
      }
    },
    snapshot: async (work) => watched(() => reading.transaction(work).deferred()),
    integrityProblems: () => {
      const rows = reading.pragma("integrity_check") as { integrity_check: string }[];
      return rows.map((row) => row.integrity_check).filter((line) => line !== "ok");
    },
    close: () => {
      reading.close();
      writing.close();
    },
  };
}

const DIALECT = {
  createAdapter: () => new SqliteAdapter(),
  createDriver: () => new DummyDriver(),
  createIntrospector: (db: Kysely<unknown>) => new SqliteIntrospector(db),
  createQueryCompiler: () => new SqliteQueryCompiler(),
};

/** `watched` sees what goes wrong in a query; the writer's queries are watched as a transaction. */
function sqliteSession(
  connection: Sqlite.Database,
  watched: <T>(work: () => T) => T = (work) => work(),
): SqlSession {
  const statements = new Map<string, Sqlite.Statement>();
  const prepare = (sql: string) => {
    const known = statements.get(sql);
    if (known) return known;
    const statement = connection.prepare(sql);
    statements.set(sql, statement);
    return statement;
  };
  return {
    build: new Kysely<Database>({ dialect: DIALECT }),
    all: async <Row>(query: Compilable<Row>) => {
      const { sql, parameters } = query.compile();
      return watched(() => prepare(sql).all(...parameters)) as Row[];
    },
    first: async <Row>(query: Compilable<Row>) => {
      const { sql, parameters } = query.compile();
      return (watched(() => prepare(sql).get(...parameters)) as Row | undefined) ?? null;
    },
    run: async (query) => {
      const { sql, parameters } = query.compile();
      return watched(() => prepare(sql).run(...parameters)).changes;
    },
  };
}

const codeOf = (error: unknown) => (error instanceof Sqlite.SqliteError ? error.code : "");

const isBusy = (error: unknown) => codeOf(error).startsWith("SQLITE_BUSY");

/** The second is said when the index of the WAL cannot grow: nothing was written yet. */
const isFull = (error: unknown) => ["SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"].includes(codeOf(error));

/** The disk failed: of what was written, nobody knows what is there. */
function isBroken(error: unknown): error is Error {
  const code = codeOf(error);
  return code.startsWith("SQLITE_IOERR") && code !== "SQLITE_IOERR_NOMEM" && !isFull(error);
}

function stillBusy(cause: unknown): ImgbatchError {
  const message = "Another process has kept the database of the service locked for too long.";
  return new ImgbatchError("BATCH_IMAGE_QUEUE_FAILED", message, { cause });
}
