import { truncateCodePoints } from "../../kernel/text.ts";
import { isSkipped, type ReadRows, type Row } from "./rows.ts";

const SHAPE = 'write one object a line, like {"prompt": "a red bicycle"}';

/** `.jsonl` and standard input: every line is a JSON object. */
export const readJsonl: ReadRows = (text, report) => {
  const rows: Row[] = [];
  text.split(/\r?\n/).forEach((content, index) => {
    if (isSkipped(content)) return;
    const line = index + 1;
    let value: unknown;
    try {
      value = JSON.parse(content);
    } catch (error) {
      report(line, null, `is not valid JSON (${reason(error)}); ${SHAPE}`);
      return;
    }
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      rows.push({ line, fields: value as Record<string, unknown> });
    } else {
      report(line, null, `is ${nameOf(value)}, not an object; ${SHAPE}`);
    }
  });
  return rows;
};

function reason(error: unknown): string {
  return truncateCodePoints(error instanceof Error ? error.message : String(error), 120, "…");
}

function nameOf(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  return value === null ? "null" : `a ${typeof value}`;
}
