import { closeSync, openSync, rmSync, writeSync } from "node:fs";
import Sqlite from "better-sqlite3";
import {
  type Compilable,
  DummyDriver,
  Kysely,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from "kysely";
import { ImgbatchError, isDatabaseDamage } from "../../contract/errors.ts";
import { StorageUnavailable } from "../../domain/ports/blob-store.ts";
import type { Clock } from "../../kernel/clock.ts";
import { fileIdentity } from "../../kernel/files.ts";
import { isDiskFull, systemCodeOf } from "../../kernel/system-errors.ts";
import { notStored } from "../disk-trouble.ts";
import type { Database } from "../tables.ts";
import { columnOf, columnValue, rowReader, type SqlDatabase, type SqlSession } from "./sql-session.ts";

class Compiler extends SqliteQueryCompiler {
  protected override sanitizeIdentifier(name: string): string {
    return super.sanitizeIdentifier(columnOf(name));
  }
}

const build = new Kysely<Database>({
  dialect: {
    createAdapter: () => new SqliteAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (db: Kysely<unknown>) => new SqliteIntrospector(db),
    createQueryCompiler: () => new Compiler(),
  },
});

/** Returns the error to throw for an error of the database. It is most often the same one. */
type Watch = (error: unknown) => unknown;

/** Runs queries of a connection outside of any transaction. `watch` sees each error. */
function sqliteSession(connection: Sqlite.Database, watch: Watch): SqlSession {
  return sessionOf(preparer(connection), async (run) => {
    try {
      return run();
    } catch (error) {
      throw watch(error);
    }
  });
}

interface Waiting {
  /**
   * Runs the work inside the open transaction. Rejects with its error; its changes are undone then, unless it is alone
   * in the transaction.
   */
  run(isAlone: boolean): Promise<void>;
  /** The transaction is durable. */
  commit(): void;
  fail(error: unknown): void;
}

/**
 * Runs pieces of work on a connection, one after the other. Those that wait at the same time share one transaction,
 * because each commit waits for the disk. It begins with the statement `begin`. Work that throws is undone alone. A promise
 * resolves when the changes are durable. `watch` sees each error. `mayBegin` can throw before work begins. The database
 * returns at once, so work that yields to the event loop waits for something else, and all other work waits for it: it is
 * undone, and rejects. A query after the end of its work rejects, because it would be part of other work.
 */
function inTransactions(
  connection: Sqlite.Database,
  begin: string,
  watch: Watch,
): <T>(work: (session: SqlSession) => Promise<T>, mayBegin?: () => void) => Promise<T> {
  const prepare = preparer(connection);
  const statements = {
    begin: prepare(begin),
    commit: prepare("COMMIT"),
    rollback: prepare("ROLLBACK"),
    mark: prepare("SAVEPOINT work"),
    keep: prepare("RELEASE work"),
    undo: prepare("ROLLBACK TO work"),
  };
  let waiting: Waiting[] = [];
  let isRunning = false;

  async function runWork<T>(work: (session: SqlSession) => Promise<T>, isAlone: boolean): Promise<T> {
    let hasEnded = false;
    const session = sessionOf(prepare, async (query) => {
      if (hasEnded) throw new Error("a query came after the end of its transaction");
      return query();
    });
    if (!isAlone) statements.mark.run();
    try {
      const result = await beforeNextTurn(work(session));
      hasEnded = true;
      if (!isAlone) statements.keep.run();
      return result;
    } catch (error) {
      hasEnded = true;
      // After some errors, such as a full disk, the database has undone the whole transaction by itself.
      if (!isAlone && connection.inTransaction) {
        statements.undo.run();
        statements.keep.run();
      }
      throw error;
    }
  }

  /** Runs the works that wait as one transaction. */
  async function runTogether(works: readonly Waiting[]): Promise<void> {
    const made: Waiting[] = [];
    const isAlone = works.length === 1;
    try {
      statements.begin.run();
      for (const work of works) {
        try {
          await work.run(isAlone);
          made.push(work);
        } catch (error) {
          if (isAlone) throw error;
          work.fail(watch(error));
          if (!connection.inTransaction) throw error;
        }
      }
      statements.commit.run();
      for (const work of made) work.commit();
    } catch (error) {
      let seen = error;
      try {
        seen = watch(error);
        if (connection.inTransaction) statements.rollback.run();
      } catch (second) {
        seen = second;
      }
      for (const work of works) work.fail(seen);
    }
  }

  async function runAll(): Promise<void> {
    while (waiting.length > 0) {
      const works = waiting;
      waiting = [];
      await runTogether(works);
    }
    isRunning = false;
  }

  return <T>(work: (session: SqlSession) => Promise<T>, mayBegin = () => {}) =>
    new Promise<T>((resolve, reject) => {
      let commit = () => {};
      waiting.push({
        run: async (isAlone) => {
          mayBegin();
          const result = await runWork(work, isAlone);
          commit = () => resolve(result);
        },
        commit: () => commit(),
        fail: reject,
      });
      if (isRunning) return;
      isRunning = true;
      // All writes of this turn of the event loop share the transaction.
      setImmediate(() => void runAll());
    });
}

function beforeNextTurn<T>(work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const turned = setImmediate(() => {
      reject(new Error("a transaction waited for something other than its database"));
    });
    const done = () => clearImmediate(turned);
    work.then(resolve, reject).then(done, done);
  });
}

type Prepare = (sql: string) => Prepared;

/** A prepared statement. It reads rows as lists and names the values itself, which is faster than objects of the library. */
class Prepared {
  readonly #statement: Sqlite.Statement;
  #read: ReturnType<typeof rowReader> = () => ({});
  #columnCount = 0;

  constructor(statement: Sqlite.Statement) {
    this.#statement = statement.reader ? statement.raw() : statement;
  }

  run(...parameters: unknown[]): Sqlite.RunResult {
    return this.#statement.run(...parameters.map(columnValue));
  }

  get(...parameters: unknown[]): unknown {
    const values = this.#statement.get(...parameters.map(columnValue)) as unknown[] | undefined;
    return values && this.#record(values);
  }

  all(...parameters: unknown[]): unknown[] {
    const rows = this.#statement.all(...parameters.map(columnValue)) as unknown[][];
    return rows.map((values) => this.#record(values));
  }

  #record(values: readonly unknown[]): unknown {
    // Another process may add columns to a table that is read whole.
    if (values.length !== this.#columnCount) {
      this.#read = rowReader(this.#statement.columns().map(({ name }) => name));
      this.#columnCount = values.length;
    }
    return this.#read(values);
  }
}

function preparer(connection: Sqlite.Database): Prepare {
  const statements = new Map<string, Prepared>();
  return (sql) => {
    const known = statements.get(sql);
    if (known) return known;
    const statement = new Prepared(connection.prepare(sql));
    statements.set(sql, statement);
    return statement;
  };
}

function sessionOf(prepare: Prepare, guarded: <T>(query: () => T) => Promise<T>): SqlSession {
  const changes = async (query: Compilable<unknown>) => {
    const { sql, parameters } = query.compile();
    return (await guarded(() => prepare(sql).run(...parameters))).changes;
  };
  return {
    build,
    dialect: "sqlite",
    all: async <Row>(query: Compilable<Row>) => {
      const { sql, parameters } = query.compile();
      return (await guarded(() => prepare(sql).all(...parameters))) as Row[];
    },
    first: async <Row>(query: Compilable<Row>) => {
      const { sql, parameters } = query.compile();
      return ((await guarded(() => prepare(sql).get(...parameters))) as Row | undefined) ?? null;
    },
    run: async (query) => {
      await changes(query);
    },
    changes,
    runEach: async (query, parameters) => {
      const { sql } = query.compile();
      await guarded(() => {
        const statement = prepare(sql);
        for (const each of parameters) statement.run(...each);
      });
    },
  };
}

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
 * Memory for pages of the file. The library's default of 16 MB for each connection is lost on those that read: each commit
 * invalidates what they have, and the system has the pages, too.
 */
const WRITER_CACHE_KIB = 8192;
const READER_CACHE_KIB = 2048;

/** A process that writes nothing notices replaced files this soon; one that writes notices before it does. */
const LOOK_EVERY_MS = 1000;

interface Upkeep {
  /** Called once; nothing is written after it. */
  onBroken?: ((cause: Error) => void) | undefined;
  /** The file by whose lock a process owns the database. It may be missing. */
  lockFile?: string;
  /** Nobody opens the file again: what is written need not survive a power cut, and no commit waits for the disk. */
  isThrowaway?: boolean | undefined;
}

/**
 * Opens (or makes) the database file. A write that returned survives a power cut, and so does whatever a read returned:
 * each commit syncs the WAL, while the process does nothing else. `onBroken` is called when the disk fails under the
 * database, when the file is damaged, and when it or the lock's is replaced. The state of the disk after a failed sync is
 * unknown, so only a new start, which reads the file again, can go on.
 */
export function openSqlite(
  file: string,
  clock: Clock,
  { onBroken = () => {}, lockFile, isThrowaway = false }: Upkeep = {},
): SqlDatabase {
  // Prompts are in it: a file that SQLite made itself could be read by others. Its companions get the same mode.
  closeSync(openSync(file, "a", 0o600));
  const writing = new Sqlite(file, { timeout: OPEN_TIMEOUT_MS });
  writing.pragma("journal_mode = WAL");
  writing.pragma(`synchronous = ${isThrowaway ? "OFF" : "FULL"}`);
  writing.pragma(`journal_size_limit = ${WAL_LIMIT_BYTES}`);
  writing.pragma(`cache_size = -${WRITER_CACHE_KIB}`);
  writing.pragma("foreign_keys = ON");
  writing.pragma("busy_timeout = 0");
  const openReader = () => {
    const connection = new Sqlite(file, { timeout: READ_TIMEOUT_MS });
    connection.pragma("query_only = ON");
    connection.pragma(`cache_size = -${READER_CACHE_KIB}`);
    return connection;
  };
  const reading = openReader();
  let broken: Error | null = null;
  const breakDown = (cause: Error) => {
    if (broken !== null) return;
    broken = cause;
    onBroken(cause);
  };
  const watch = (error: unknown): unknown => {
    const quota = quotaError(file, error);
    if (quota !== null) return quota;
    if (isBroken(error)) breakDown(error);
    return error;
  };
  const replacedFile = watchIdentity(file, lockFile);
  const look = () => {
    const replaced = replacedFile();
    if (replaced !== null) breakDown(replacedError(replaced));
  };
  const looking = setInterval(look, LOOK_EVERY_MS).unref();
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
            look();
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
    clock,
    clockMs: async () => clock.nowMs(),
    integrityProblems: async () => {
      const rows = reading.pragma("integrity_check") as { integrity_check: string }[];
      return rows.map((row) => row.integrity_check).filter((line) => line !== "ok");
    },
    warnings: [],
    close: async () => {
      clearInterval(looking);
      snapshots?.connection.close();
      reading.close();
      writing.close();
    },
  };
}

/** The disk failed during a commit: the next start finds all of the transaction, or nothing of it. */
function perhapsStored(cause: unknown): StorageUnavailable {
  const message = `The service's disk has failed (${systemCodeOf(cause)}): whether this was done is not known until it runs again.`;
  return new StorageUnavailable("unknown-commit", message, cause);
}

/** Larger than any space that a file can take without a new block. */
const PROBE_BYTES = 64 * 1024;

/**
 * Returns the error of a used-up quota behind an error of the database, or null. SQLite reports both a quota and a
 * failing disk as `SQLITE_IOERR_WRITE`, so another file is written beside the database to find out.
 */
function quotaError(databaseFile: string, error: unknown): Error | null {
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

/**
 * Returns a function that finds a file that was replaced since the start. Writes to a replaced database are lost.
 * With another lock file, another process can own the database. A missing lock file lets none in.
 */
function watchIdentity(file: string, lockFile: string | undefined): () => string | null {
  const lockIdentity = () => (lockFile === undefined ? null : fileIdentity(lockFile));
  const [first, firstLock] = [fileIdentity(file), lockIdentity()];
  return () => {
    if (fileIdentity(file) !== first) return file;
    const lock = lockIdentity();
    const isOther = firstLock !== null && lock !== null && lock !== firstLock;
    return isOther ? (lockFile ?? null) : null;
  };
}

function replacedError(path: string): ImgbatchError {
  const message = `${path} was removed or replaced while it was in use; nothing more is written. Replace files of a data directory only while no service runs on it.`;
  return new ImgbatchError("STORAGE_FAILED", message);
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
