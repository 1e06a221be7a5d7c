import type { Insertable } from "kysely";
import type { SqlSession } from "../dialects/sql-session.ts";
import type { Database } from "../schema.ts";

/** Inserts rows in their order. Each must have the columns of the first. */
export async function insertRows<Table extends keyof Database>(
  { build, runEach }: SqlSession,
  table: Table,
  rows: readonly Insertable<Database[Table]>[],
): Promise<void> {
  const [first] = rows;
  if (first === undefined) return;
  const columns = Object.keys(first) as (keyof typeof first)[];
  const parameters = rows.map((row) => columns.map((column) => row[column]));
  await runEach(build.insertInto(table).values(first as never), parameters);
}
