/** Rows per statement: faster than one each, and within the parameter limit of every database. */
const ROWS_A_STATEMENT = 50;

/** The rows in their order, as many at a time as one insert takes. */
export function* inStatements<Row>(rows: readonly Row[]): Generator<Row[]> {
  for (let i = 0; i < rows.length; i += ROWS_A_STATEMENT) yield rows.slice(i, i + ROWS_A_STATEMENT);
}
