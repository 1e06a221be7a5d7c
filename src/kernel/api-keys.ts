import { escapeControls } from "./text.ts";

/**
 * An API key of this program, or enough of one to be worth guessing the rest, inside other text. Each character may be
 * percent-encoded, as it can be in an address. Batch ids (`imgbatch_…`) are no such thing.
 */
const API_KEY = /(?:i|%69)(?:m|%6d)(?:g|%67)(?:b|%62)(?:_|%5f)(?:[\w-]|%[2-7][0-9a-f]){20,}/gi;

/**
 * Whether an API key stands anywhere in the text.
 * Rule: SECRET-4.
 */
export function holdsApiKey(text: string): boolean {
  return text.search(API_KEY) >= 0;
}

/**
 * The text with `imgb_…` in the place of every API key: for logs and messages, whatever they were made of.
 * Rules: SECRET-3, SECRET-6.
 */
export function hideApiKeys(text: string): string {
  return text.replace(API_KEY, "imgb_…");
}

/**
 * A line for a person or a log: it can neither move the cursor nor show a key.
 * Rule: SECRET-6.
 */
export function safeLine(text: string): string {
  return hideApiKeys(escapeControls(text));
}
