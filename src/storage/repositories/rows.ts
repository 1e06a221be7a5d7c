import type { Insertable } from "kysely";
import { fieldOf, prepared, type SqlSession, type Values } from "../dialects/sql-session.ts";
import { columnsOfTables } from "../foundation.ts";
import type { Database } from "../tables.ts";

/** Each statement is a round trip to the server, and may have 65,535 parameters. */
const ROWS_A_STATEMENT = 500;

const FIELDS = new Map(Array.from(columnsOfTables(), ([table, columns]) => [table, columns.map(fieldOf)]));

/** Returns the names of the columns of a table, without those that its record does not have. */
export const columnNames = <Name extends string>(table: keyof Database, others: readonly string[]) =>
  (FIELDS.get(table) ?? []).filter((name) => !others.includes(name)) as Name[];

/** Returns the fields of a record that are columns of its table: callers may pass a record that has more. */
export function columnsOf<Row extends object>(table: keyof Database, record: Row): Row {
  return Object.fromEntries(columnsIn(table, [record]).map((name) => [name, record[name]])) as Row;
}

/** The columns of a table that any of the records has. */
function columnsIn<Row extends object>(
  table: keyof Database,
  records: readonly Row[],
): (keyof Row & string)[] {
  const fields = (FIELDS.get(table) ?? []) as (keyof Row & string)[];
  return fields.filter((name) => records.some((record) => record[name] !== undefined));
}

/** Inserts rows in their order, without the fields that are no columns of the table. A column that no row has gets its default. */
export async function insertRows<Table extends keyof Database>(
  { build, dialect, run, runEach }: SqlSession,
  table: Table,
  rows: readonly Insertable<Database[Table]>[],
): Promise<void> {
  const columns = columnsIn(table, rows);
  if (dialect === "postgres" && rows.length > 1) {
    for (let at = 0; at < rows.length; at += ROWS_A_STATEMENT) {
      const some = rows.slice(at, at + ROWS_A_STATEMENT);
      const records = some.map((row) => Object.fromEntries(columns.map((name) => [name, row[name] ?? null])));
      await run(build.insertInto(table).values(records as never));
    }
    return;
  }
  const [first] = rows;
  if (first === undefined) return;
  const values = rows.map((row) => columns.map((column) => row[column] ?? null));
  await runEach(insertInto(table, columns)(build, first), values);
}

/** Inserts a row, unless there is one that has the same values in these columns. */
export async function insertNew<Table extends keyof Database>(
  { build, changes }: SqlSession,
  table: Table,
  row: Insertable<Database[Table]>,
  unique: readonly (keyof Insertable<Database[Table]> & string)[],
): Promise<{ isNew: boolean }> {
  const insert = insertInto(table, columnsIn(table, [row]), unique);
  return { isNew: (await changes(insert(build, row))) === 1 };
}

const INSERTS = new Map<string, ReturnType<typeof newInsert>>();

/** Mostly all inserts into a table have the same columns. */
function insertInto(
  table: keyof Database,
  columns: readonly string[],
  unique: readonly string[] = [],
): ReturnType<typeof newInsert> {
  const name = `${table} ${columns} ${unique}`;
  const insert = INSERTS.get(name) ?? newInsert(table, columns, unique);
  INSERTS.set(name, insert);
  return insert;
}

function newInsert(table: keyof Database, columns: readonly string[], unique: readonly string[]) {
  return prepared((build, values: Values<Record<string, unknown>>) => {
    const row = Object.fromEntries(columns.map((column) => [column, values[column]]));
    const insert = build.insertInto(table).values(row as never);
    return unique.length === 0 ? insert : insert.onConflict((on) => on.columns(unique as never).doNothing());
  });
}
