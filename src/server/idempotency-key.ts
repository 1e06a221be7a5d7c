import type { Request } from "express";
import { ImgbatchError, type ServiceErrorCode } from "../contract/errors.ts";
import { FIXED_LIMITS } from "../contract/limits.ts";
import { IDEMPOTENCY_KEY_HEADER } from "../contract/routes.ts";
import { holdsApiKey } from "../kernel/hide-keys.ts";
import { sha256Hex } from "../kernel/ids.ts";

/** Returns the idempotency key of a request as it is stored; null without one. Throws the given error for a malformed one. */
export function idempotencyKeyOf(request: Request, code: ServiceErrorCode): string | null {
  const key = request.get(IDEMPOTENCY_KEY_HEADER);
  if (key === undefined) return null;
  const max = FIXED_LIMITS.idempotencyKeyChars;
  const isWellFormed = key.length >= 1 && key.length <= max && /^[\x20-\x7e]+$/.test(key);
  // An API key that was sent by mistake works like any other text, but must not be stored in clear.
  if (isWellFormed) return holdsApiKey(key) ? `sha256:${sha256Hex(key)}` : key;
  const message = `Idempotency-Key: must be 1 to ${max} printable ASCII characters`;
  throw new ImgbatchError(code, message, { param: "Idempotency-Key" });
}
