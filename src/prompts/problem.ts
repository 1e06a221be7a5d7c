/** The file and the line of a prompt. */
export interface FileLine {
  /** The file as the caller named it; `<stdin>` for standard input. */
  file: string;
  /** From 1. */
  line: number;
}

/** A problem in the input. Its message also gives the right form. */
export interface Problem {
  file: string;
  /** Null when it is about the file as a whole. */
  line: number | null;
  /** Null when it is about the line as a whole. */
  field: string | null;
  message: string;
}

/** Reports a problem of the row that is being read. */
export type Report = (field: string | null, message: string) => void;

export function formatProblem({ file, line, field, message }: Problem): string {
  return `${file}${line === null ? "" : `:${line}`}: ${field === null ? "" : `${field}: `}${message}`;
}
