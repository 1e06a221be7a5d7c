import { hideUsedKeys } from "../../kernel/api-keys.ts";
import { escapeControls, truncateCodePoints } from "../../kernel/text.ts";

const MAX_WORDS = 2000;

/** Makes text of an upstream safe for messages: no secrets, one line, no control characters, at most 2000 characters. */
export function cleanWords(text: string): string {
  return truncateCodePoints(oneLine(hideUsedKeys(text)), MAX_WORDS, "…");
}

/** Joins the lines with ` | `, and makes control characters visible. */
export function oneLine(text: string): string {
  return escapeControls(text.trim().replace(/\s*[\r\n]\s*/g, " | "));
}
