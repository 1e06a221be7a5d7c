import { isSkipped, type ReadRows } from "./rows.ts";

/** `.txt`: every line is a prompt. */
export const readPlainLines: ReadRows = async function* (lines) {
  for await (const { number: line, text: prompt, problem } of lines) {
    if (problem === null && !isSkipped(prompt)) yield { line, fields: { prompt } };
  }
};
