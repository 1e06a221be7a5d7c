import { hideUsedKeys } from "../../kernel/api-keys.ts";
import { escapeControls, truncateCodePoints } from "../../kernel/text.ts";
import type { Tail } from "./tail.ts";

const MAX_MESSAGE = 2000;
const STDERR_BYTES = 2048;
/** No secret is longer. */
const LONGEST_SECRET = 8192;

/** Makes text of a program safe for messages: no secrets, no control characters, a limited length. */
export function cleanWords(text: string): string {
  return truncateCodePoints(oneLine(hideUsedKeys(text)), MAX_MESSAGE, "…");
}

/** Returns the last 2 KiB of the standard error as one safe line; empty when there is none. */
export function lastWords(stderr: Tail): string {
  const hidden = hideUsedKeys(stderr.text());
  // The cut may have gone through a secret, whose rest is not found any more.
  const whole = stderr.isCut ? hidden.slice(LONGEST_SECRET) : hidden;
  return oneLine(Buffer.from(whole).subarray(-STDERR_BYTES).toString("utf8"));
}

function oneLine(text: string): string {
  return escapeControls(text.trim().replace(/\s*[\r\n]\s*/g, " | "));
}
