import { escapeControls } from "../../kernel/text.ts";

/** A record of a list for programs: fields between tabs, on one line, always the same number of fields. */
export function recordLine(fields: readonly (string | number)[]): string {
  return fields.map((field) => escapeControls(String(field))).join("\t");
}
