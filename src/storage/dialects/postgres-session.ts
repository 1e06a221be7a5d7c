import {
  type Compilable,
  DummyDriver,
  HandleEmptyInListsPlugin,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  replaceWithNoncontingentExpression,
} from "kysely";
import type { QueryArrayResult } from "pg";
import type { Database } from "../tables.ts";
import { columnOf, columnValue, rowReader, type SqlSession } from "./sql-session.ts";

class Compiler extends PostgresQueryCompiler {
  protected override sanitizeIdentifier(name: string): string {
    return super.sanitizeIdentifier(columnOf(name));
  }
}

const build = new Kysely<Database>({
  dialect: {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (db: Kysely<unknown>) => new PostgresIntrospector(db),
    createQueryCompiler: () => new Compiler(),
  },
  // `in ()` is no PostgreSQL.
  plugins: [new HandleEmptyInListsPlugin({ strategy: replaceWithNoncontingentExpression })],
});

/**
 * Sends one statement, with its values for `$1`, `$2` and so on. It has no name: a pooler gives each transaction another
 * connection, which does not know the statements of the one before.
 */
type Ask = (query: { text: string; values: unknown[]; rowMode: "array" }) => Promise<QueryArrayResult>;

/** Runs queries with `ask`. */
export function postgresSession(ask: Ask): SqlSession {
  const askFor = (text: string, parameters: readonly unknown[]) =>
    ask({ text, values: parameters.map(parameterOf), rowMode: "array" });
  const all = async <Row>(query: Compilable<Row>) => {
    const { sql: text, parameters } = query.compile();
    const { rows, fields } = await askFor(text, parameters);
    return rows.map(rowReader(fields.map(({ name }) => name))) as Row[];
  };
  const changes = async (query: Compilable<unknown>) => {
    const { sql: text, parameters } = query.compile();
    return (await askFor(text, parameters)).rowCount ?? 0;
  };
  return {
    build,
    dialect: "postgres",
    all,
    first: async (query) => (await all(query))[0] ?? null,
    run: async (query) => {
      await changes(query);
    },
    changes,
    runEach: async (query, parameters) => {
      const { sql: text } = query.compile();
      for (const each of parameters) await askFor(text, each);
    },
  };
}

class List {
  readonly values: readonly unknown[];

  constructor(values: readonly unknown[]) {
    this.values = values;
  }
}

/** An array of PostgreSQL, as a parameter. Any other array is JSON. */
export function arrayOf<Value>(values: readonly Value[]): Value[] {
  return new List(values) as unknown as Value[];
}

/** PostgreSQL stores and compares no NUL. In stored texts and in searches, U+FFFD takes its place. */
function parameterOf(value: unknown): unknown {
  if (value instanceof List) return value.values.map(parameterOf);
  const stored = columnValue(value);
  return typeof stored === "string" && stored.includes("\0") ? stored.replaceAll("\0", "\uFFFD") : stored;
}
