import { FIXED_LIMITS } from "../../contract/limits.ts";
import { type OpenaiBody, uploadFieldsSchema } from "../../contract/openai-api.ts";
import { PATHS } from "../../contract/routes.ts";
import type { Upload } from "../../domain/files/uploads.ts";
import type { FileFacts, FileRecord } from "../../domain/ports/stores.ts";
import { toSeconds } from "../../kernel/durations.ts";
import { truncateCodePoints } from "../../kernel/text.ts";
import { headerKey } from "../http/authenticate.ts";
import { invalidArgument, parseArgument } from "../http/errors.ts";
import { invalidQuery, listBody, readQuery } from "../http/parameters.ts";
import { DEFAULT_TYPE, download, type FileForm, storeForm, vendorFiles } from "../jobs/vendor-files.ts";
import type { Operation, Surface } from "../operation.ts";
import { type Part, readParts, textOf } from "../request-body/multipart.ts";
import { removeResult } from "./batches.ts";
import { openaiErrorStyle } from "./images.ts";

/** A file as OpenAI's API shows it. Those of the vendor's API have no purpose of their own. */
function fileView(file: FileRecord): OpenaiBody<"OpenaiFile"> {
  return view(
    file,
    file.displayName ?? file.id,
    (file.purpose ?? "user_data") as OpenaiBody<"OpenaiFile">["purpose"],
  );
}

/** A file with the results of a batch. */
function resultView(
  id: string,
  file: { sizeBytes: number; createdAtMs: number; expiresAtMs: number | null },
): OpenaiBody<"OpenaiFile"> {
  return view({ id, ...file }, `${id}.jsonl`, "batch_output");
}

function view(
  file: { id: string; sizeBytes: number; createdAtMs: number; expiresAtMs: number | null },
  filename: string,
  purpose: OpenaiBody<"OpenaiFile">["purpose"],
): OpenaiBody<"OpenaiFile"> {
  const { id, sizeBytes, createdAtMs, expiresAtMs } = file;
  return {
    id,
    object: "file",
    bytes: sizeBytes,
    created_at: toSeconds(createdAtMs),
    ...(expiresAtMs === null ? {} : { expires_at: toSeconds(expiresAtMs) }),
    filename,
    purpose,
    status: "processed",
  };
}

const { filePageMax } = FIXED_LIMITS;

const files = vendorFiles({
  view: (_deps, _request, file) => fileView(file),
  readPage: async (deps, request, keyId) => {
    const limit = Math.min(readQuery(request, "OpenaiLimit") ?? filePageMax, filePageMax);
    const order = readQuery(request, "OpenaiOrder");
    const purpose = readQuery(request, "OpenaiPurpose");
    const after = readQuery(request, "OpenaiAfter");
    const last = after === undefined ? undefined : await deps.stores.read.files.find(keyId, after);
    if (last === null) throw invalidQuery("after", "must be the id of a file of this list");
    return {
      limit,
      filter: {
        order: order === "asc" ? "oldest-first" : "newest-first",
        ...(last && { afterSeq: last.seq }),
        ...(purpose && { purpose }),
      },
      body: listBody,
    };
  },
  deleted: (id): OpenaiBody<"DeletedFile"> => ({ id, object: "file", deleted: true }),
  results: { view: resultView, remove: removeResult },
});

const MOST_PARTS = 20;
const FIELD_BYTES = 1024;

function readForm(boundary: string, upload: Upload): FileForm {
  const fields: Record<string, string> = {};
  let file: Pick<Part, "fileName" | "type"> | null = null;
  let sizeBytes = 0;
  const parts = readParts(boundary, MOST_PARTS, async (part) => {
    if (part.name !== "file") {
      const { name = "" } = part;
      if (part.fileName === undefined) fields[name] = await textOf(part, FIELD_BYTES);
      else if (name === "purpose") throw invalidArgument(name, "must be a text, not a file");
      return;
    }
    if (file !== null) throw invalidFile("may be there once");
    // A field without either is a text: `curl -F file=NAME` forgets the `@`.
    if (part.fileName === undefined && part.type === undefined)
      throw invalidFile("must be a file, not a text");
    file = part;
    for await (const bytes of part.bytes()) {
      sizeBytes += bytes.length;
      await upload.add(bytes);
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
  const { purpose, expires_after: expiry } = parseArgument(uploadFieldsSchema, given);
  return {
    id: null,
    displayName:
      truncateCodePoints((file.fileName ?? "").toWellFormed(), FIXED_LIMITS.fileDisplayNameChars) || null,
    mimeType: truncateCodePoints(file.type ?? DEFAULT_TYPE, FIXED_LIMITS.fileTypeChars),
    purpose,
    ...(expiry && { keptMs: expiry.seconds * 1000 }),
  };
}

const invalidFile = (problem: string) => invalidArgument("file", problem);

/** The operations on files. */
const fileOperations: readonly Operation[] = [
  {
    id: "uploadOpenaiFile",
    method: "post",
    path: PATHS.openaiFiles,
    summary: "Upload a file of requests, or an image for edits, for OpenAI clients",
    formBody: "OpenaiUploadForm",
    answers: { 200: { description: "The file.", schema: "OpenaiFile" } },
    errors: [
      "REALTIME_INVALID_ARGUMENT",
      "UNSUPPORTED_MEDIA_TYPE",
      "REQUEST_TIMEOUT",
      "REQUEST_TOO_LARGE",
      "FILE_QUOTA_EXCEEDED",
      "BATCH_IMAGE_QUEUE_FAILED",
    ],
    handler: (deps) => async (request, response) => {
      const { file } = await storeForm(deps, request, response, readForm);
      if (file !== null) response.json(fileView(file));
    },
  },
  {
    ...files.list,
    id: "listOpenaiFiles",
    path: PATHS.openaiFiles,
    summary: "Uploaded files of this key, of both APIs",
    parameters: ["OpenaiLimit", "OpenaiAfter", "OpenaiOrder", "OpenaiPurpose"],
    answers: { 200: { description: "A page of files.", schema: "OpenaiFileList" } },
    errors: ["BATCH_IMAGE_INVALID_QUERY"],
  },
  { ...download, id: "downloadOpenaiFile", path: PATHS.openaiFileContent },
  {
    ...files.get,
    id: "getOpenaiFile",
    path: PATHS.openaiFile,
    summary: "One file",
    answers: { 200: { description: "The file.", schema: "OpenaiFile" } },
    errors: [...files.get.errors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
  },
  {
    ...files.remove,
    id: "deleteOpenaiFile",
    path: PATHS.openaiFile,
    summary: "Delete a file; with the one of its images, those of a batch",
    answers: { 200: { description: "The file is deleted.", schema: "DeletedFile" } },
    errors: [...files.remove.errors, "BATCH_IMAGE_QUEUE_FAILED"],
  },
];

/** Files for OpenAI clients. */
export const openaiFiles: Surface = {
  tag: "files",
  vendor: "openai",
  prefix: PATHS.openaiFiles,
  operations: fileOperations,
  credential: headerKey,
  errorStyles: [[/^\/v1\/(?:files|batches)(?:\/|$)/, openaiErrorStyle]],
};
