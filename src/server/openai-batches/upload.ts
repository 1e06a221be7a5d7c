import type { Request, Response } from "express";
import type { z } from "zod";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { uploadFieldsSchema } from "../../contract/openai-batches/files.ts";
import { inWords } from "../../contract/schema-words.ts";
import type { Chunk } from "../../domain/files/uploads.ts";
import type { FileFacts } from "../../domain/ports/files.ts";
import { truncateCodePoints } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { DEFAULT_TYPE } from "../native-api/files/file-facts.ts";
import { type Part, readParts, textOf } from "../request-body/multipart.ts";
import { fieldError, schemaProblem } from "../request-problems.ts";
import { type FileForm, storeForm } from "../store-form.ts";
import { fileView } from "./file-view.ts";

const MOST_PARTS = 20;
const FIELD_BYTES = 1024;

/** `POST /v1/files`: stores the file of a form. Unknown fields are ignored. */
export function uploadFile(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { file } = await storeForm(deps, request, response, readForm);
    if (file !== null) response.json(fileView(file));
  };
}

function readForm(boundary: string, chunk: Chunk): FileForm {
  const fields: Record<string, string> = {};
  let file: Pick<Part, "fileName" | "type"> | null = null;
  let sizeBytes = 0;
  const parts = readParts(boundary, MOST_PARTS, async (part) => {
    if (part.name !== "file") {
      const { name = "" } = part;
      if (part.fileName === undefined) fields[name] = await textOf(part, FIELD_BYTES);
      else if (name === "purpose")
        throw fieldError("REALTIME_INVALID_ARGUMENT", name, "must be a text, not a file");
      return;
    }
    if (file !== null) throw invalidFile("may be there once");
    // A field without either is a text: `curl -F file=NAME` forgets the `@`.
    if (part.fileName === undefined && part.type === undefined)
      throw invalidFile("must be a file, not a text");
    file = part;
    for await (const bytes of part.bytes()) {
      sizeBytes += bytes.length;
      await chunk.add(bytes);
    }
  });
  const end = async () => {
    await parts.end();
    if (file === null) throw invalidFile("is required: a file");
    if (sizeBytes === 0) throw invalidFile("is empty");
    return factsOf(fields, file);
  };
  return { add: parts.add, end };
}

function factsOf(fields: Record<string, string>, file: Pick<Part, "fileName" | "type">): FileFacts {
  const anchor = fields["expires_after[anchor]"];
  const seconds = fields["expires_after[seconds]"];
  const hasExpiry = anchor !== undefined || seconds !== undefined;
  const given = {
    purpose: fields.purpose,
    ...(hasExpiry && { expires_after: { anchor, seconds: seconds && Number(seconds) } }),
  };
  const parsed = uploadFieldsSchema.safeParse(given, { error: inWords });
  if (!parsed.success) throw schemaProblem(parsed.error as z.ZodError, "REALTIME_INVALID_ARGUMENT");
  const { purpose, expires_after: expiry } = parsed.data;
  return {
    id: null,
    displayName:
      truncateCodePoints((file.fileName ?? "").toWellFormed(), FIXED_LIMITS.fileDisplayNameChars) || null,
    mimeType: truncateCodePoints(file.type ?? DEFAULT_TYPE, FIXED_LIMITS.fileTypeChars),
    purpose,
    ...(expiry && { keptMs: expiry.seconds * 1000 }),
  };
}

const invalidFile = (problem: string) => fieldError("REALTIME_INVALID_ARGUMENT", "file", problem);
