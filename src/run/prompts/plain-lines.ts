import { isSkipped, type ReadRows } from "./rows.ts";

/** `.txt`: every line is a prompt. */
export const readPlainLines: ReadRows = (text) =>
  text
    .split(/\r?\n/)
    .map((prompt, index) => ({ line: index + 1, fields: { prompt } }))
    .filter((row) => !isSkipped(row.fields.prompt));
