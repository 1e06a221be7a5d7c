import { hideUsedKeys } from "../../kernel/hide-keys.ts";
import { oneLine } from "../upstream/words.ts";
import type { Tail } from "./tail.ts";

const STDERR_BYTES = 2048;
/** No secret is longer. */
const LONGEST_SECRET = 8192;

/** Returns the last 2 KiB of the standard error as one safe line; empty when there is none. */
export function lastWords(stderr: Tail): string {
  const hidden = hideUsedKeys(stderr.text());
  // The cut may have gone through a secret, whose rest is not found any more.
  const whole = stderr.isCut ? hidden.slice(LONGEST_SECRET) : hidden;
  return oneLine(Buffer.from(whole).subarray(-STDERR_BYTES).toString("utf8"));
}
