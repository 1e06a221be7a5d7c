import { isBlank, type ReadRows } from "./rows.ts";

/** `.txt`: every line that is not blank is a prompt, also one that begins with `//`. */
export const readPlainLines: ReadRows = async function* (lines) {
  for await (const { number: line, text: prompt, problem } of lines) {
    if (problem === null && !isBlank(prompt)) yield { line, fields: { prompt } };
  }
};
