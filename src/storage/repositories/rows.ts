import type { Insertable } from "kysely";
import { prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";
import type { Database } from "../tables.ts";

/** Each statement is a round trip to the server, and may have 65,535 parameters. */
const ROWS_A_STATEMENT = 500;

/** Inserts rows in their order. Each must have the columns of the first. */
export async function insertRows<Table extends keyof Database>(
  { build, dialect, run, runEach }: SqlSession,
  table: Table,
  rows: readonly Insertable<Database[Table]>[],
): Promise<void> {
  if (dialect === "postgres" && rows.length > 1) {
    for (let at = 0; at < rows.length; at += ROWS_A_STATEMENT) {
      await run(build.insertInto(table).values(rows.slice(at, at + ROWS_A_STATEMENT) as never));
    }
    return;
  }
  const [first] = rows;
  if (first === undefined) return;
  const columns = Object.keys(first);
  const values = rows.map((row) => columns.map((column) => (row as Record<string, unknown>)[column]));
  await runEach(insertInto(table, columns)(build, first), values);
}

/** The last insert into each table: mostly all of them have the same columns. */
const known = new Map<keyof Database, { columns: readonly string[]; insert: ReturnType<typeof newInsert> }>();

function insertInto(table: keyof Database, columns: readonly string[]): ReturnType<typeof newInsert> {
  const last = known.get(table);
  if (last?.columns.length === columns.length && last.columns.every((name, i) => name === columns[i]))
    return last.insert;
  const insert = newInsert(table, columns);
  known.set(table, { columns, insert });
  return insert;
}

function newInsert(table: keyof Database, columns: readonly string[]) {
  return prepared((build, values: Values<Record<string, unknown>>) => {
    const row = Object.fromEntries(columns.map((column) => [column, values[column]]));
    return build.insertInto(table).values(row as never);
  });
}
