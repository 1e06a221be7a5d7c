import type { Limits } from "../contract/limits.ts";
import { FORMAT_NAMES, type FormatName } from "./format-names.ts";
import { readJsonl } from "./jsonl.ts";
import { isBlank, type ReadRows } from "./rows.ts";
import { readTable } from "./table.ts";

/** `.txt`: every line that is not blank is a prompt, also one that begins with `//`. */
const readPlainLines: ReadRows = async function* (lines) {
  for await (const { number: line, text: prompt, problem } of lines) {
    if (problem === null && !isBlank(prompt)) yield { line, fields: { prompt } };
  }
};

/** The way in which a kind of prompt file is read. */
export interface Format {
  read: ReadRows;
  /** A longer line is an error. */
  maxLineBytes: number;
}

/** Far more than the longest prompt with all that belongs to it. */
const TEXT_LINE_BYTES = 4 * 1024 * 1024;

const FORMATS: Record<FormatName, ReadRows> = {
  jsonl: readJsonl,
  txt: readPlainLines,
  csv: readTable(",", TEXT_LINE_BYTES),
  tsv: readTable("\t", TEXT_LINE_BYTES),
};

/**
 * Returns the format of a file: the named one, else by its extension, else JSON lines. A JSON line may hold images: it may
 * be as long as a request.
 */
export function formatOf(
  fileName: string,
  { createBodyBytes }: Limits,
  named: FormatName | null = null,
): Format {
  const extension = /[^/\\]\.([^./\\]+)$/.exec(fileName)?.[1]?.toLowerCase();
  const name = named ?? FORMAT_NAMES.find((each) => each === extension) ?? "jsonl";
  const read = FORMATS[name];
  return name === "jsonl" ? { read, maxLineBytes: createBodyBytes } : { read, maxLineBytes: TEXT_LINE_BYTES };
}
