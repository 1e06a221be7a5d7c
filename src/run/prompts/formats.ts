import { extname } from "node:path";
import { readCsv } from "./csv.ts";
import { readJsonl } from "./jsonl.ts";
import { readPlainLines } from "./plain-lines.ts";
import type { ReadRows } from "./rows.ts";

const FORMATS: Record<string, ReadRows> = {
  ".txt": readPlainLines,
  ".csv": (text, report) => readCsv(text, ",", report),
  ".tsv": (text, report) => readCsv(text, "\t", report),
};

/** The format that belongs to a file's name; JSON lines unless it says otherwise. */
export function formatOf(fileName: string): ReadRows {
  return FORMATS[extname(fileName).toLowerCase()] ?? readJsonl;
}
