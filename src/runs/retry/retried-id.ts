import { FIXED_LIMITS } from "../../contract/limits.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { codePointLength } from "../../kernel/text.ts";

/** Returns the id under which an image is sent again: its own, unless its number makes it too long for a request. */
export function retriedId(id: string): string {
  const isShort = codePointLength(id) <= FIXED_LIMITS.customIdChars;
  return isShort ? id : `retry_${sha256Hex(id).slice(0, 32)}`;
}
