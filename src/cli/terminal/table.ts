import { escapeControls } from "../../kernel/text.ts";

/** A column of a table for people; amounts are aligned on the right. */
export interface Column<Row> {
  title: string;
  align?: "right";
  of(row: Row): string;
}

/** The length of the longest text; of very many too. */
export function longest(texts: readonly string[]): number {
  return texts.reduce((most, text) => Math.max(most, text.length), 0);
}

/** The rows as lines of equally wide columns below their titles. Text of others cannot move the cursor. */
export function tableLines<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string[] {
  const cells = columns.map(({ title, of }) => [title, ...rows.map((row) => escapeControls(of(row)))]);
  const padded = cells.map((column, i) => {
    const width = longest(column);
    return column.map((cell) => (columns[i]?.align === "right" ? cell.padStart(width) : cell.padEnd(width)));
  });
  return ["", ...rows].map((_, row) =>
    padded
      .map((column) => column[row])
      .join("  ")
      .trimEnd(),
  );
}

/** A record of a list for programs: fields between tabs, one line, always as many fields. */
export function recordLine(fields: readonly (string | number)[]): string {
  return fields.map((field) => escapeControls(String(field))).join("\t");
}
