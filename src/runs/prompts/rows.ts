import type { Line } from "./lines.ts";

/** A line of a prompt file before its fields are checked. */
export interface Row {
  /** Where it begins, from 1. */
  line: number;
  fields: Record<string, unknown>;
}

export type ReportLine = (line: number, field: string | null, message: string) => void;

/**
 * Makes rows of the lines of a prompt file as they come. A line that is no row is reported, never thrown. The lines
 * include those with a problem, since a row may span several lines; such a problem is not reported again.
 */
export type ReadRows = (lines: AsyncIterable<Line>, report: ReportLine) => AsyncIterable<Row>;

/** A blank line carries no prompt. */
export function isBlank(line: string): boolean {
  return line.trim() === "";
}
