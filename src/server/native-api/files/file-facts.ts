import type { Request } from "express";
import type { z } from "zod";
import { ImgbatchError } from "../../../contract/errors.ts";
import { FIXED_LIMITS } from "../../../contract/limits.ts";
import { startUploadSchema } from "../../../contract/native-jobs.ts";
import { inWords } from "../../../contract/text-rules.ts";
import type { FileFacts } from "../../../domain/ports/files.ts";
import { jsonExcess } from "../../../kernel/json/json-shape.ts";
import { hasUnstorableText, isLongerThan } from "../../../kernel/text.ts";
import { fieldError, schemaProblem } from "../../request-problems.ts";
import { camelKeys } from "../request/camel-keys.ts";

/** The most bytes of the JSON that describes a file. */
export const METADATA_BYTES = 64 * 1024;
/** The type of a file for which nobody declares one. */
export const DEFAULT_TYPE = "application/octet-stream";
const ID = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;

/**
 * Reads the JSON that describes a file; no text at all stands for no description. `mimeType` is the type that another part
 * of the request declares: it counts where the JSON has none. Throws `INVALID_JSON` and `REALTIME_INVALID_ARGUMENT`.
 */
export function readFileFacts(text: string, mimeType: string | undefined): FileFacts {
  const value = text.trim() === "" ? {} : parseLeniently(text);
  const parsed = startUploadSchema.safeParse(camelKeys(value), { error: inWords });
  if (!parsed.success) throw schemaProblem(parsed.error as z.ZodError, "REALTIME_INVALID_ARGUMENT");
  const { name, displayName, mimeType: described } = parsed.data.file ?? {};
  return {
    id: name ? idOf(name) : null,
    displayName: displayName
      ? limited("file.displayName", displayName, FIXED_LIMITS.fileDisplayNameChars)
      : null,
    mimeType: limited("file.mimeType", described || mimeType || DEFAULT_TYPE, FIXED_LIMITS.fileTypeChars),
  };
}

/** Examples in the vendor's guide write the JSON of curl with single quotes. */
function parseLeniently(text: string): unknown {
  const { jsonDepth: maxDepth, jsonElements: maxElements } = FIXED_LIMITS;
  const excess = jsonExcess(Buffer.from(text), { maxDepth, maxElements });
  if (excess !== null) throw new ImgbatchError("INVALID_JSON");
  for (const json of [text, text.replaceAll("'", '"')]) {
    try {
      return JSON.parse(json);
    } catch {
      // The next spelling is tried.
    }
  }
  throw new ImgbatchError("INVALID_JSON");
}

function idOf(name: string): string {
  const id = name.replace(/^files\//, "");
  if (id.length <= FIXED_LIMITS.fileNameChars && ID.test(id)) return id;
  const problem = `must be files/ and at most ${FIXED_LIMITS.fileNameChars} lower-case letters, digits and dashes, without a dash at either end`;
  throw fieldError("REALTIME_INVALID_ARGUMENT", "file.name", problem);
}

function limited(field: string, text: string, maxChars: number): string {
  if (isLongerThan(text, maxChars)) {
    throw fieldError("REALTIME_INVALID_ARGUMENT", field, `has more than ${maxChars} characters`);
  }
  if (hasUnstorableText(text)) {
    throw fieldError("REALTIME_INVALID_ARGUMENT", field, "must not hold NUL or half of a surrogate pair");
  }
  return text;
}

/** The whole number of a header; null when it is missing. Throws `REALTIME_INVALID_ARGUMENT`. */
export function byteHeader(request: Request, name: string): number | null {
  const text = request.get(name);
  if (text === undefined) return null;
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw fieldError("REALTIME_INVALID_ARGUMENT", name, "must be a whole number of bytes");
}
