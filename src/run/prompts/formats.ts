import { extname } from "node:path";
import type { Limits } from "../../contract/limits.ts";
import { readJsonl } from "./jsonl.ts";
import { readPlainLines } from "./plain-lines.ts";
import type { ReadRows } from "./rows.ts";
import { readTable } from "./table.ts";

/** How a kind of prompt file is read. */
export interface Format {
  read: ReadRows;
  /** A longer line is an error. */
  maxLineBytes: number;
}

/** Far more than the longest prompt with all that belongs to it. */
const TEXT_LINE_BYTES = 4 * 1024 * 1024;

const FORMATS: Record<string, ReadRows> = {
  ".txt": readPlainLines,
  ".csv": readTable(",", TEXT_LINE_BYTES),
  ".tsv": readTable("\t", TEXT_LINE_BYTES),
};

/**
 * The format that belongs to a file's name; JSON lines unless it says otherwise. A JSON line may hold images: it may be
 * as long as a request.
 */
export function formatOf(fileName: string, { createBodyBytes }: Limits): Format {
  const read = FORMATS[extname(fileName).toLowerCase()];
  return read === undefined
    ? { read: readJsonl, maxLineBytes: createBodyBytes }
    : { read, maxLineBytes: TEXT_LINE_BYTES };
}
