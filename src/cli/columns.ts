import { escapeControls } from "../kernel/text.ts";

/** A column of a table for people; amounts are aligned on the right. */
export interface Column<Row> {
  title: string;
  align?: "right";
  of(row: Row): string;
}

/** The rows as lines of equally wide columns below their titles. Text of others cannot move the cursor. */
export function tableLines<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string[] {
  const cells = columns.map(({ title, of }) => [title, ...rows.map((row) => escapeControls(of(row)))]);
  const padded = cells.map((column, i) => {
    const width = Math.max(...column.map((cell) => cell.length));
    return column.map((cell) => (columns[i]?.align === "right" ? cell.padStart(width) : cell.padEnd(width)));
  });
  return ["", ...rows].map((_, row) =>
    padded
      .map((column) => column[row])
      .join("  ")
      .trimEnd(),
  );
}
