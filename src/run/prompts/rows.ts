/** A line of a prompt file before its fields are checked. */
export interface Row {
  /** Where it begins, from 1. */
  line: number;
  fields: Record<string, unknown>;
}

export type ReportLine = (line: number, field: string | null, message: string) => void;

/** Splits the text of a prompt file into rows; what is no row is reported, never thrown. */
export type ReadRows = (text: string, report: ReportLine) => Row[];

/** Blank lines and comments carry no prompt. */
export function isSkipped(line: string): boolean {
  const text = line.trim();
  return text === "" || text.startsWith("//");
}
