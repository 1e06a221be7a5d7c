import type { Insertable } from "kysely";
import { kept, type Values } from "../dialects/kept-query.ts";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { Database } from "../schema.ts";

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
  const columns = Object.keys(first) as (keyof typeof first)[];
  const parameters = rows.map((row) => columns.map((column) => row[column]));
  await runEach(insertInto(table, columns as string[])(build, first), parameters);
}

const known = new Map<string, ReturnType<typeof newInsert>>();

function insertInto(table: keyof Database, columns: readonly string[]): ReturnType<typeof newInsert> {
  const name = `${table} ${columns.join(" ")}`;
  let insert = known.get(name);
  if (insert === undefined) {
    insert = newInsert(table, columns);
    known.set(name, insert);
  }
  return insert;
}

function newInsert(table: keyof Database, columns: readonly string[]) {
  return kept((build, values: Values<Record<string, unknown>>) => {
    const row = Object.fromEntries(columns.map((column) => [column, values[column]]));
    return build.insertInto(table).values(row as never);
  });
}
