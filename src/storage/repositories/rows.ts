import type { Insertable } from "kysely";
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
  if (dialect === "postgres") {
    for (let at = 0; at < rows.length; at += ROWS_A_STATEMENT) {
      await run(build.insertInto(table).values(rows.slice(at, at + ROWS_A_STATEMENT) as never));
    }
    return;
  }
  const [first] = rows;
  if (first === undefined) return;
  const columns = Object.keys(first) as (keyof typeof first)[];
  const parameters = rows.map((row) => columns.map((column) => row[column]));
  await runEach(build.insertInto(table).values(first as never), parameters);
}
