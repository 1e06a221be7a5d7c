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
import type { Clock } from "../../kernel/clock.ts";
import type { Database } from "../schema.ts";
import type { SqlDatabase, SqlSession } from "./sql-session.ts";

/** A wait for a lock blocks the whole process, so it is short; then the transaction is tried again later. */
const BUSY_TIMEOUT_MS = 100;
const BUSY_RETRY_MS = 20;
const BUSY_GIVE_UP_MS = 10_000;

/** Opens (or makes) the database file. WAL with full sync: a commit that returned survives a power cut. */
export function openSqlite(file: string, clock: Clock): SqlDatabase {
  // Prompts are in it: a file that SQLite made itself could be read by others. Its companions get the same mode.
  closeSync(openSync(file, "a", 0o600));
  const writing = new Sqlite(file, { timeout: BUSY_TIMEOUT_MS });
  writing.pragma("journal_mode = WAL");
  writing.pragma("synchronous = FULL");
  writing.pragma("foreign_keys = ON");
  const reading = new Sqlite(file, { timeout: BUSY_TIMEOUT_MS });
  reading.pragma("query_only = ON");
  const writer = sqliteSession(writing);
  return {
    writer,
    reader: sqliteSession(reading),
    transaction: async (work) => {
      const attempt = writing.transaction(() => work(writer)).immediate;
      for (let waitedMs = 0; ; waitedMs += BUSY_TIMEOUT_MS + BUSY_RETRY_MS) {
        try {
          return attempt();
        } catch (error) {
          if (!isBusy(error) || waitedMs >= BUSY_GIVE_UP_MS) throw error;
          await clock.sleep(BUSY_RETRY_MS);
        }
      }
    },
    snapshot: (work) => reading.transaction(work).deferred(),
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

function sqliteSession(connection: Sqlite.Database): SqlSession {
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
    all: <Row>(query: Compilable<Row>) => {
      const { sql, parameters } = query.compile();
      return prepare(sql).all(...parameters) as Row[];
    },
    first: <Row>(query: Compilable<Row>) => {
      const { sql, parameters } = query.compile();
      return (prepare(sql).get(...parameters) as Row | undefined) ?? null;
    },
    run: (query) => {
      const { sql, parameters } = query.compile();
      return prepare(sql).run(...parameters).changes;
    },
  };
}

function isBusy(error: unknown): boolean {
  return error instanceof Sqlite.SqliteError && error.code.startsWith("SQLITE_BUSY");
}
