import { visit } from "jsonc-parser";
import type { Limits } from "../contract/limits.ts";
import { truncateCodePoints } from "../kernel/text.ts";
import { FORMAT_NAMES, type FormatName, isBlank, type ReadRows } from "./lines.ts";
import { readTable } from "./table.ts";

/**
 * Returns the keys that a JSON object has more than once, each key once. The objects inside it are not looked at. `text`
 * must be the valid JSON text of an object. A parser alone would keep only the last value of such a key.
 */
export function repeatedKeys(text: string): string[] {
  const seen = new Set<string>();
  const repeated = new Set<string>();
  let depth = 0;
  visit(text, {
    // False leaves out everything inside an inner object.
    onObjectBegin: () => ++depth === 1,
    onObjectEnd: () => {
      depth--;
    },
    onObjectProperty: (key) => {
      if (seen.has(key)) repeated.add(key);
      seen.add(key);
    },
  });
  return [...repeated];
}

const SHAPE = 'write one object a line, like {"prompt": "a red bicycle"}';

/** `.jsonl` and standard input: every line is a JSON object, or blank, or a comment that begins with `//`. */
const readJsonl: ReadRows = async function* (lines, report) {
  let isFirst = true;
  for await (const { number: line, text, problem } of lines) {
    if (problem !== null || isBlank(text) || isComment(text)) continue;
    if (isFirst && text.trimStart().startsWith("[")) {
      report(null, null, `is a JSON array; ${SHAPE} (jq -c '.[]' does that)`);
      return;
    }
    isFirst = false;
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (error) {
      report(line, null, `is not valid JSON (${reason(error)}); ${SHAPE}`);
      continue;
    }
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      for (const key of repeatedKeys(text))
        report(line, key, "appears more than once; keep one, or write a line for each");
      yield { line, fields: value as Record<string, unknown> };
    } else {
      report(line, null, `is ${nameOf(value)}, not an object; ${SHAPE}`);
    }
  }
};

function isComment(text: string): boolean {
  return text.trimStart().startsWith("//");
}

function reason(error: unknown): string {
  return truncateCodePoints(error instanceof Error ? error.message : String(error), 120, "…");
}

function nameOf(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  return value === null ? "null" : `a ${typeof value}`;
}

/** `.txt`: every line that is not blank is a prompt, also one that begins with `//`. */
const readPlainLines: ReadRows = async function* (lines) {
  for await (const { number: line, text: prompt, problem } of lines) {
    if (problem === null && !isBlank(prompt)) yield { line, fields: { prompt } };
  }
};

/** The way in which a kind of prompt file is read. */
interface Format {
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
