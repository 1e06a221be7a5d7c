import type Sqlite from "better-sqlite3";
import {
  type Compilable,
  DummyDriver,
  Kysely,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from "kysely";
import type { Database } from "../schema.ts";
import type { SqlSession } from "./sql-session.ts";

const build = new Kysely<Database>({
  dialect: {
    createAdapter: () => new SqliteAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (db: Kysely<unknown>) => new SqliteIntrospector(db),
    createQueryCompiler: () => new SqliteQueryCompiler(),
  },
});

/**
 * Sees an error of the database, and returns the error to throw in its place, which most often is the same.
 */
export type Watch = (error: unknown) => unknown;

/** Runs queries of a connection outside of any transaction. `watch` sees each error. */
export function sqliteSession(connection: Sqlite.Database, watch: Watch): SqlSession {
  return sessionOf(preparer(connection), (run) => {
    try {
      return run();
    } catch (error) {
      throw watch(error);
    }
  });
}

/**
 * Runs works on a connection one after the other, each as a transaction that begins with the statement `begin`.
 * `watch` sees each error. `mayBegin` can throw before a work begins. The database returns at once, so a work that
 * yields to the event loop waits for something else while all others wait for it: it is undone, and rejects.
 * A query after the end of its transaction rejects, because it would be part of another one.
 */
export function inTransactions(
  connection: Sqlite.Database,
  begin: string,
  watch: Watch,
): <T>(work: (session: SqlSession) => Promise<T>, mayBegin?: () => void) => Promise<T> {
  const prepare = preparer(connection);
  const run = { begin: prepare(begin), commit: prepare("COMMIT"), rollback: prepare("ROLLBACK") };

  async function transaction<T>(work: (session: SqlSession) => Promise<T>): Promise<T> {
    let hasEnded = false;
    const session = sessionOf(prepare, (query) => {
      if (hasEnded) throw new Error("a query came after the end of its transaction");
      return query();
    });
    try {
      run.begin.run();
      const result = await beforeNextTurn(work(session));
      hasEnded = true;
      run.commit.run();
      return result;
    } catch (error) {
      hasEnded = true;
      const seen = watch(error);
      if (connection.inTransaction) run.rollback.run();
      throw seen;
    }
  }

  let last: Promise<unknown> = Promise.resolve();
  return (work, mayBegin = () => {}) => {
    const turn = () => {
      mayBegin();
      return transaction(work);
    };
    const done = last.then(turn, turn);
    last = done;
    return done;
  };
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

type Prepare = (sql: string) => Sqlite.Statement;

function preparer(connection: Sqlite.Database): Prepare {
  const statements = new Map<string, Sqlite.Statement>();
  return (sql) => {
    const known = statements.get(sql);
    if (known) return known;
    const statement = connection.prepare(sql);
    statements.set(sql, statement);
    return statement;
  };
}

function sessionOf(prepare: Prepare, guarded: <T>(query: () => T) => T): SqlSession {
  return {
    build,
    all: async <Row>(query: Compilable<Row>) => {
      const { sql, parameters } = query.compile();
      return guarded(() => prepare(sql).all(...parameters)) as Row[];
    },
    first: async <Row>(query: Compilable<Row>) => {
      const { sql, parameters } = query.compile();
      return (guarded(() => prepare(sql).get(...parameters)) as Row | undefined) ?? null;
    },
    run: async (query) => {
      const { sql, parameters } = query.compile();
      return guarded(() => prepare(sql).run(...parameters)).changes;
    },
  };
}
