import type { Line } from "./lines.ts";

/** A line of a prompt file before its fields are checked. */
export interface Row {
  /** The number of its first line, from 1. */
  line: number;
  fields: Record<string, unknown>;
}

export type ReportLine = (line: number | null, field: string | null, message: string) => void;

/**
 * Makes rows of the lines of a prompt file as they come. A line that is not a row is reported, never thrown. A row may
 * span several lines, so lines with a problem are passed on too; their problem is not reported again. `isTaken` tells
 * whether a row may have a field.
 */
export type ReadRows = (
  lines: AsyncIterable<Line>,
  report: ReportLine,
  isTaken: (name: string) => boolean,
) => AsyncIterable<Row>;

/** A blank line carries no prompt. */
export function isBlank(line: string): boolean {
  return line.trim() === "";
}
