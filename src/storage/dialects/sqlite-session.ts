import type Sqlite from "better-sqlite3";
import {
  type Compilable,
  DummyDriver,
  Kysely,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from "kysely";
import type { Database } from "../tables.ts";
import { columnOf, columnValue, rowReader, type SqlSession } from "./sql-session.ts";

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
export function sqliteSession(connection: Sqlite.Database, watch: Watch): SqlSession {
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
export function inTransactions(
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
