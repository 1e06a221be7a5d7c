import type { ZodError } from "zod";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { hasUnstorableText } from "../../kernel/text.ts";

/** An error about one field: the message names it, and so does `param`. */
export function fail(code: ServiceErrorCode, param: string, problem: string): ImgbatchError {
  return new ImgbatchError(code, `${param}: ${problem}`, { param });
}

/** The first type error of a body, under the code that belongs to the field it is in. */
export function schemaProblem(error: ZodError): ImgbatchError {
  const issues = error.issues.map((issue) => ({
    path: issue.path,
    message: issue.message,
  }));
  // Wrong types of ordinary fields come first: references are checked after items.
  const issue = issues.find((i) => !isReferencePath(i.path)) ?? issues[0];
  const path = issue?.path ?? [];
  const param = path.reduce<string>((text, part) => {
    if (typeof part === "number") return `${text}[${part}]`;
    return text === "" ? String(part) : `${text}.${String(part)}`;
  }, "");
  const code = isReferencePath(path) ? "BATCH_IMAGE_INVALID_REFERENCE_IMAGE" : "BATCH_IMAGE_INVALID_ITEMS";
  return fail(code, param || "body", lowerFirst(issue?.message ?? "is not valid"));
}

function isReferencePath(path: readonly PropertyKey[]): boolean {
  return path[2] === "reference_images" && path.length > 3;
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

/** Metadata within its limits; an empty object counts as none. */
export function checkMetadata(metadata: Record<string, string> | null): Record<string, string> | null {
  if (metadata === null) return null;
  const pairs = Object.entries(metadata);
  const { metadataPairs, metadataKeyChars, metadataValueChars } = FIXED_LIMITS;
  const invalid = (param: string, problem: string) => fail("BATCH_IMAGE_INVALID_ITEMS", param, problem);
  if (pairs.length > metadataPairs) throw invalid("metadata", `has more than ${metadataPairs} pairs`);
  for (const [key, value] of pairs) {
    if (hasUnstorableText(key) || hasUnstorableText(value)) {
      throw invalid("metadata", "must not hold NUL or half of a surrogate pair");
    }
    const keyLength = Array.from(key).length;
    if (keyLength < 1 || keyLength > metadataKeyChars) {
      throw invalid("metadata", `a key must have 1 to ${metadataKeyChars} characters`);
    }
    if (Array.from(value).length > metadataValueChars) {
      throw invalid(`metadata.${key}`, `must have at most ${metadataValueChars} characters`);
    }
  }
  return pairs.length === 0 ? null : metadata;
}
