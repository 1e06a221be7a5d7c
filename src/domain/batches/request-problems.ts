import type { ZodError } from "zod";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { hasUnstorableText, isLongerThan } from "../../kernel/text.ts";

/** An error about one field: the message names it, and so does `param`. */
export function fieldError(code: ServiceErrorCode, param: string, problem: string): ImgbatchError {
  return new ImgbatchError(code, `${param}: ${problem}`, { param });
}

/** The first type error of a body, or of the part of it that `prefix` names. */
export function schemaProblem(error: ZodError, code: ServiceErrorCode, prefix = ""): ImgbatchError {
  const issue = error.issues[0];
  const path = issue?.path ?? [];
  const param = path.reduce<string>((text, part) => {
    if (typeof part === "number") return `${text}[${part}]`;
    return text === "" ? String(part) : `${text}.${String(part)}`;
  }, "");
  const at = [prefix, param].filter((part) => part !== "").join(".");
  return fieldError(code, at || "body", lowerFirst(issue?.message ?? "is not valid"));
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

/** Metadata within its limits; null when there is none. Throws `BATCH_IMAGE_INVALID_ITEMS`. */
export function checkMetadata(metadata: unknown): Record<string, string> | null {
  const invalid = (param: string, problem: string) => fieldError("BATCH_IMAGE_INVALID_ITEMS", param, problem);
  if (metadata === null || metadata === undefined) return null;
  if (typeof metadata !== "object" || Array.isArray(metadata)) {
    throw invalid("metadata", "must be an object of texts");
  }
  const pairs = Object.entries(metadata as Record<string, unknown>);
  const { metadataPairs, metadataKeyChars, metadataValueChars } = FIXED_LIMITS;
  if (pairs.length > metadataPairs) throw invalid("metadata", `has more than ${metadataPairs} pairs`);
  for (const [key, value] of pairs) {
    if (key === "" || isLongerThan(key, metadataKeyChars)) {
      throw invalid("metadata", `a key must have 1 to ${metadataKeyChars} characters`);
    }
    if (typeof value !== "string") throw invalid(`metadata.${key}`, "must be text");
    if (isLongerThan(value, metadataValueChars)) {
      throw invalid(`metadata.${key}`, `must have at most ${metadataValueChars} characters`);
    }
    if (hasUnstorableText(key) || hasUnstorableText(value)) {
      throw invalid("metadata", "must not hold NUL or half of a surrogate pair");
    }
  }
  return metadata as Record<string, string>;
}
