import { join } from "node:path";
import Sqlite from "better-sqlite3";
import type { Compilable } from "kysely";
import { onTestFinished } from "vitest";
import type { SqlSession } from "../../src/storage/dialects/sql-session.ts";
import { openSqlite } from "../../src/storage/dialects/sqlite.ts";
import { FakeClock } from "./fake-clock.ts";
import { openBeside } from "./service.ts";
import { tempDir } from "./temp-dir.ts";

/** A session on an empty database that runs no query, and SQLite's plans of the queries that it was given, a line for each step. */
export async function sessionOfPlans(): Promise<{ session: SqlSession; plans: string[] }> {
  const data = await tempDir();
  await openBeside(data);
  const file = join(data, "imgbatch.db");
  const database = openSqlite(file, new FakeClock());
  const plain = new Sqlite(file, { readonly: true });
  onTestFinished(async () => {
    plain.close();
    await database.close();
  });
  const plans: string[] = [];
  const explain = (query: Compilable<unknown>) => {
    const { sql, parameters } = query.compile();
    const steps = plain
      .prepare<unknown[], { detail: string }>(`EXPLAIN QUERY PLAN ${sql}`)
      .all(...parameters);
    plans.push(...steps.map(({ detail }) => detail));
  };
  const all = async (query: Compilable<unknown>) => {
    explain(query);
    return [];
  };
  return { session: { ...database.reader, run: async (query) => explain(query), all }, plans };
}
