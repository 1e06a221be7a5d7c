import cliTruncate from "cli-truncate";
import stringWidth from "string-width";
import { escapeControls } from "../../kernel/text.ts";

/** A column of a table for people; amounts are aligned on the right. */
export interface Column<Row> {
  title: string;
  align?: "right";
  /** The most terminal cells that the column takes; a longer value ends in `…`. Default: no limit. */
  maxWidth?: number;
  of(row: Row): string;
}

const PLAIN = /^[\x20-\x7e]*$/;

/** The terminal cells that a text takes: wide characters take two, combining marks none (UAX #11). */
function widthOf(text: string): number {
  // Measuring is slow, and a list may have very many plain cells.
  return PLAIN.test(text) ? text.length : stringWidth(text);
}

/** The width of the widest text, in terminal cells. */
export function widest(texts: readonly string[]): number {
  return texts.reduce((most, text) => Math.max(most, widthOf(text)), 0);
}

/** Returns the rows as lines of equally wide columns below their titles. No value can move the cursor. */
export function tableLines<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string[] {
  const padded = columns.map(({ title, align, maxWidth, of }) => {
    const cells = [title, ...rows.map((row) => fitted(escapeControls(of(row)), maxWidth))];
    const width = widest(cells);
    return cells.map((cell) => {
      const space = " ".repeat(width - widthOf(cell));
      return align === "right" ? space + cell : cell + space;
    });
  });
  return ["", ...rows].map((_, row) =>
    padded
      .map((column) => column[row])
      .join("  ")
      .trimEnd(),
  );
}

function fitted(text: string, maxWidth: number | undefined): string {
  return maxWidth === undefined || widthOf(text) <= maxWidth ? text : cliTruncate(text, maxWidth);
}
