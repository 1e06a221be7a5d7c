import type { Request, Response } from "express";
import type { z } from "zod";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import {
  type DeletedFile,
  FILE_PURPOSES,
  type OpenaiFile,
  uploadFieldsSchema,
} from "../../contract/openai-api.ts";
import { inWords } from "../../contract/text-rules.ts";
import { dropOutputs } from "../../domain/batches/delete.ts";
import { deleteFile, findFile } from "../../domain/files/files.ts";
import type { Chunk } from "../../domain/files/upload.ts";
import type { FileFacts, FileRecord } from "../../domain/ports/files.ts";
import { truncateCodePoints } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../http/authenticate.ts";
import { fieldError, schemaProblem } from "../http/errors.ts";
import { invalidQuery, queryChoice, queryText } from "../http/query.ts";
import { type FileForm, storeForm } from "../jobs/vendor-files.ts";
import { DEFAULT_TYPE, fileNotFound, fileParameter } from "../native-api/files.ts";
import { type Part, readParts, textOf } from "../request-body/multipart.ts";
import { findResult, type ResultOf } from "./batch-lines.ts";
import { listPage, pageLimit } from "./batches.ts";

const secondsOf = (ms: number) => Math.floor(ms / 1000);

/** A file as OpenAI's API shows it. Those of the vendor's API have no purpose of their own. */
function fileView(file: FileRecord): OpenaiFile {
  return view(file, file.displayName ?? file.id, (file.purpose ?? "user_data") as OpenaiFile["purpose"]);
}

/** A file with the results of a batch. */
function resultView(
  id: string,
  file: { sizeBytes: number; createdAtMs: number; expiresAtMs: number | null },
): OpenaiFile {
  return view({ id, ...file }, `${id}.jsonl`, "batch_output");
}

function view(
  file: { id: string; sizeBytes: number; createdAtMs: number; expiresAtMs: number | null },
  filename: string,
  purpose: OpenaiFile["purpose"],
): OpenaiFile {
  const { id, sizeBytes, createdAtMs, expiresAtMs } = file;
  return {
    id,
    object: "file",
    bytes: sizeBytes,
    created_at: secondsOf(createdAtMs),
    ...(expiresAtMs === null ? {} : { expires_at: secondsOf(expiresAtMs) }),
    filename,
    purpose,
    status: "processed",
  };
}

/** `GET /v1/files`: the uploaded files of the key, page by page. Files with results are named by their batches. */
export function listOpenaiFiles(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { id: apiKeyId } = callerOf(response).key;
    const limit = pageLimit(request, FIXED_LIMITS.filePageMax, FIXED_LIMITS.filePageMax);
    const order = queryChoice(request, "order", ["asc", "desc"]) ?? "desc";
    const purpose = queryChoice(request, "purpose", [...FILE_PURPOSES, "batch_output"]);
    const after = queryText(request, "after");
    const last = after === undefined ? undefined : await deps.stores.read.files.find(apiKeyId, after);
    if (last === null) throw invalidQuery("after", "must be the id of a file of this list");
    const found = await deps.stores.read.files.page({
      apiKeyId,
      nowMs: deps.clock.nowMs(),
      order: order === "asc" ? "oldest-first" : "newest-first",
      ...(last && { afterSeq: last.seq }),
      ...(purpose && { purpose }),
      // One more shows whether there is another page.
      limit: limit + 1,
    });
    response.json(listPage(found.map(fileView), limit));
  };
}

/** `GET /v1/files/{file}`. */
export function getOpenaiFile(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { id: keyId } = callerOf(response).key;
    const id = fileParameter(request);
    const file = await findFile(deps.stores.read, keyId, id, deps.clock.nowMs());
    if (file !== null) {
      response.json(fileView(file));
      return;
    }
    // Its size is known only after the results were read.
    const leaveSlot = deps.slots.take(keyId);
    try {
      const made = await deps.findGeneratedFile(keyId, id);
      if (made === null) throw fileNotFound(id);
      response.json(resultView(id, made));
    } finally {
      leaveSlot();
    }
  };
}

/** `DELETE /v1/files/{file}`: also the images, or the errors, of a batch. */
export function removeOpenaiFile(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { id: keyId } = callerOf(response).key;
    const id = fileParameter(request);
    const file = await findFile(deps.stores.read, keyId, id, deps.clock.nowMs());
    if (file !== null) await deleteFile(deps, file);
    else {
      const result = await findResult(deps, keyId, id);
      if (result === null) throw fileNotFound(id);
      await removeResult(deps, result);
    }
    const deleted: DeletedFile = { id, object: "file", deleted: true };
    response.json(deleted);
  };
}

async function removeResult(deps: ApiDeps, { kind, batch }: ResultOf): Promise<void> {
  if (kind === "output") return dropOutputs(deps, batch.id, deps.clock.nowMs());
  const { input } = batch;
  if (input === null) return;
  const origin = { ...input.origin, areErrorsDeleted: true };
  await deps.stores.write((tx) => tx.batches.update(batch.id, { input: { ...input, origin } }));
}

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
