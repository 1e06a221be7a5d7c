import { truncateCodePoints } from "../kernel/text.ts";
import { repeatedKeys } from "./repeated-keys.ts";
import { isBlank, type ReadRows } from "./rows.ts";

const SHAPE = 'write one object a line, like {"prompt": "a red bicycle"}';

/** `.jsonl` and standard input: every line is a JSON object, or blank, or a comment that begins with `//`. */
export const readJsonl: ReadRows = async function* (lines, report) {
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
