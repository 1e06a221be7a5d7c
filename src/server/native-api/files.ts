import type { Request, Response } from "express";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { type NativeBody, nativeSchemas } from "../../contract/native-api.ts";
import { PATHS } from "../../contract/routes.ts";
import { keyState } from "../../domain/accounts.ts";
import type { Upload } from "../../domain/files/uploads.ts";
import type { FileFacts, FileRecord } from "../../domain/ports/stores.ts";
import { jsonExcess } from "../../kernel/json.ts";
import { isLongerThan } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { admit, callerOf, headerOrQueryKey } from "../http/authenticate.ts";
import { fieldError, invalidArgument, parseArgument, requireStorable } from "../http/errors.ts";
import { publicUrlOf } from "../http/host.ts";
import { readQuery, tokenNumber } from "../http/parameters.ts";
import { DEFAULT_TYPE, download, type FileForm, storeForm, vendorFiles } from "../jobs/vendor-files.ts";
import type { Credential, Operation, Surface } from "../operation.ts";
import { announcedLength, streamBody } from "../request-body/json-body.ts";
import { type Part, readParts, textOf } from "../request-body/multipart.ts";
import { camelKeys } from "./check-content.ts";

/** The most bytes of the JSON that describes a file. */
const METADATA_BYTES = 64 * 1024;
const ID = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;

/**
 * Reads the JSON that describes a file; no text at all stands for no description. `mimeType` is the type that another part
 * of the request declares: it counts where the JSON has none. Throws `INVALID_JSON` and `REALTIME_INVALID_ARGUMENT`.
 */
function readFileFacts(text: string, mimeType: string | undefined): FileFacts {
  const value = text.trim() === "" ? {} : parseLeniently(text);
  const { file = {} } = parseArgument(nativeSchemas.StartUpload, camelKeys(value));
  const { name, displayName, mimeType: described } = file ?? {};
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
  throw invalidArgument("file.name", problem);
}

function limited(field: string, text: string, maxChars: number): string {
  if (isLongerThan(text, maxChars)) {
    throw invalidArgument(field, `has more than ${maxChars} characters`);
  }
  requireStorable(field, text);
  return text;
}

/** The whole number of a header; null when it is missing. Throws `REALTIME_INVALID_ARGUMENT`. */
function byteHeader(request: Request, name: string): number | null {
  const text = request.get(name);
  if (text === undefined) return null;
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw invalidArgument(name, "must be a whole number of bytes");
}

/** A file as the vendor's API shows it. */
function fileView(
  deps: Pick<ApiDeps, "server">,
  request: Request,
  file: FileRecord,
): NativeBody<"NativeFile"> {
  const { id, displayName, createdAtMs, expiresAtMs } = file;
  const createTime = new Date(createdAtMs).toISOString();
  return {
    name: `files/${id}`,
    ...(displayName === null ? {} : { displayName }),
    mimeType: file.mimeType,
    sizeBytes: String(file.sizeBytes),
    createTime,
    updateTime: createTime,
    expirationTime: new Date(expiresAtMs).toISOString(),
    // The vendor encodes the digits, not the bytes.
    sha256Hash: Buffer.from(file.sha256).toString("base64"),
    uri: `${publicUrlOf(deps, request)}${PATHS.files}/${id}`,
    state: "ACTIVE",
    source: "UPLOADED",
  };
}

const { filePageDefault } = FIXED_LIMITS;

const files = vendorFiles({
  view: fileView,
  readPage: async (_deps, request) => {
    const limit = readQuery(request, "FilePageSize") || filePageDefault;
    const beforeSeq = tokenNumber(request);
    return {
      limit,
      filter: { order: "newest-first", ...(beforeSeq === 0 ? {} : { afterSeq: beforeSeq }) },
      body: (views, found) => ({
        files: views,
        ...(found.length > limit ? { nextPageToken: String(found[limit - 1]?.seq) } : {}),
      }),
    };
  },
  deleted: () => ({}),
});

/** The operations on files that were uploaded. */
export const fileOperations: readonly Operation[] = [
  {
    ...files.list,
    id: "listFiles",
    path: PATHS.files,
    summary: "Uploaded files of this key, newest first",
    parameters: ["FilePageSize", "PageToken"],
    answers: { 200: { description: "A page of files.", schema: "NativeFileList" } },
    errors: ["REALTIME_INVALID_ARGUMENT"],
  },
  { ...download, id: "downloadFile", path: PATHS.fileDownload },
  {
    ...files.get,
    id: "getFile",
    path: PATHS.file,
    summary: "One file",
    answers: { 200: { description: "The file.", schema: "NativeFile" } },
  },
  {
    ...files.remove,
    id: "deleteFile",
    path: PATHS.file,
    summary: "Delete a file",
    answers: { 200: { description: "The file is deleted.", schema: "Empty" } },
    errors: [...files.remove.errors, "BATCH_IMAGE_QUEUE_FAILED"],
  },
];

/** Headers of uploads, as the vendor's API names them. */
const UPLOAD_HEADERS = {
  command: "X-Goog-Upload-Command",
  offset: "X-Goog-Upload-Offset",
  protocol: "X-Goog-Upload-Protocol",
  fileBytes: "X-Goog-Upload-Header-Content-Length",
  fileType: "X-Goog-Upload-Header-Content-Type",
  url: "X-Goog-Upload-URL",
  status: "X-Goog-Upload-Status",
  received: "X-Goog-Upload-Size-Received",
} as const;

/** The query parameter of an upload URL: whoever knows its value may go on with the upload. */
const UPLOAD_ID = "upload_id";

/** Writes the state of an upload into the headers of the response, whether that is a success or an error. */
function showUpload(response: Response, upload: Upload): void {
  response.setHeader(UPLOAD_HEADERS.status, upload.state);
  response.setHeader(UPLOAD_HEADERS.received, upload.receivedBytes);
}

/** Responds with a finished upload. */
function answerFile(deps: ApiDeps, request: Request, response: Response, record: FileRecord): void {
  response.setHeader(UPLOAD_HEADERS.status, "final");
  const body: NativeBody<"UploadedFile"> = { file: fileView(deps, request, record) };
  response.json(body);
}

/** A form has two parts that count. */
const MOST_PARTS = 10;

/**
 * Reads a file and the JSON that describes it from a multipart body (RFC 2046): `multipart/related` has the JSON as its
 * first part, `multipart/form-data` as its field `metadata` or not at all. Parts of other names are dropped. Both methods
 * throw `REALTIME_INVALID_ARGUMENT` and the errors of the chunk.
 */
function readForm(boundary: string, upload: Upload): FileForm {
  let metadata = "";
  let file: Pick<Part, "type"> | null = null;
  const parts = readParts(boundary, MOST_PARTS, async (part) => {
    const { name, isFirst, fileName } = part;
    if (name === "metadata" || (name === undefined && isFirst)) metadata = await textOf(part, METADATA_BYTES);
    else if (name === undefined || name === "file" || fileName !== undefined) {
      if (file !== null) throw invalidArgument("body", "has more than one file");
      file = part;
      for await (const bytes of part.bytes()) await upload.add(bytes);
    }
  });
  const end = async () => {
    await parts.end();
    if (file === null) throw invalidArgument("body", "has no part with the file");
    return readFileFacts(metadata, file.type);
  };
  return { add: parts.add, end };
}

/** Takes a file in one body. */
async function uploadMultipart(deps: ApiDeps, request: Request, response: Response): Promise<void> {
  const upload = await storeForm(deps, request, response, readForm, (failed) => showUpload(response, failed));
  showUpload(response, upload);
  if (upload.file !== null) answerFile(deps, request, response, upload.file);
}

const COMMANDS = ["upload", "finalize", "query", "cancel"];

/**
 * Goes on with an upload: takes a chunk, finishes or cancels it, or reports how much has come. The id of the upload is the
 * only credential; the key that began it must still be active.
 */
async function continueUpload(deps: ApiDeps, request: Request, response: Response): Promise<void> {
  const upload = await findUpload(deps, request, response);
  showUpload(response, upload);
  const commands = commandsOf(request);
  if (commands.includes("cancel")) await upload.cancel();
  else if (upload.file !== null) return answerFile(deps, request, response, upload.file);
  else if (!commands.includes("query")) return takeChunk(deps, request, response, upload, commands);
  showUpload(response, upload);
  response.json({});
}

async function takeChunk(
  deps: ApiDeps,
  request: Request,
  response: Response,
  upload: Upload,
  commands: readonly string[],
): Promise<void> {
  const isUpload = commands.includes("upload");
  const offset = byteHeader(request, UPLOAD_HEADERS.offset);
  if (offset === null && isUpload) {
    throw invalidArgument(UPLOAD_HEADERS.offset, "is required: where the bytes belong");
  }
  try {
    await upload.open(offset, isUpload ? announcedLength(request) : 0);
    try {
      if (isUpload) await streamBody(request, response, { add: (bytes) => upload.add(bytes) });
      // Also a chunk without a byte must still have the upload.
      await upload.add(Buffer.alloc(0));
      if (commands.includes("finalize")) await upload.finish();
    } finally {
      await upload.close();
    }
  } catch (error) {
    // The same chunk, sent twice: the other request has finished the upload meanwhile.
    if (upload.file === null || isTakenOver(error)) throw withHeaderName(error);
  } finally {
    showUpload(response, upload);
  }
  if (upload.file !== null) answerFile(deps, request, response, upload.file);
  else response.json({});
}

const isTakenOver = (error: unknown) =>
  error instanceof ImgbatchError && error.code === "FILE_UPLOAD_TAKEN_OVER";

/** Returns the error with the name of the header at fault. */
function withHeaderName(error: unknown): unknown {
  if (!(error instanceof ImgbatchError) || error.code !== "REALTIME_INVALID_ARGUMENT") return error;
  const { param = "", message } = error;
  const header = { offset: UPLOAD_HEADERS.offset, announcedBytes: UPLOAD_HEADERS.fileBytes }[param];
  return header ? fieldError(error.code, header, message.slice(`${param}: `.length)) : error;
}

async function findUpload(deps: ApiDeps, request: Request, response: Response): Promise<Upload> {
  const id = request.query[UPLOAD_ID];
  const upload = await deps.uploads.find(typeof id === "string" ? id : "");
  const key = await deps.stores.read.keys.byId(upload.apiKeyId);
  if (key === null || keyState(key, deps.clock.nowMs()) !== "active") {
    throw new ImgbatchError("API_KEY_DISABLED");
  }
  admit(deps, response, key);
  return upload;
}

/** The commands of a request: `upload, finalize`. Throws `REALTIME_INVALID_ARGUMENT`. */
function commandsOf(request: Request): string[] {
  const commands = (request.get(UPLOAD_HEADERS.command) ?? "").split(",").map((word) => word.trim());
  if (commands.every((command) => COMMANDS.includes(command))) return commands;
  const problem = `must be upload, finalize, both with a comma, query or cancel`;
  throw invalidArgument(UPLOAD_HEADERS.command, problem);
}

async function start(deps: ApiDeps, request: Request, response: Response): Promise<void> {
  const protocol = request.get(UPLOAD_HEADERS.protocol) ?? "resumable";
  if (protocol !== "resumable") {
    throw invalidArgument(UPLOAD_HEADERS.protocol, "must be resumable");
  }
  const announced = byteHeader(request, UPLOAD_HEADERS.fileBytes);
  const text: Buffer[] = [];
  const add = (bytes: Buffer) => {
    text.push(bytes);
    return null;
  };
  await streamBody(request, response, { maxBytes: METADATA_BYTES, add });
  const facts = readFileFacts(String(Buffer.concat(text)), request.get(UPLOAD_HEADERS.fileType));
  const begun = await deps.uploads.begin(callerOf(response).key.id, facts, announced);
  showUpload(response, begun);
  // The path as the caller wrote it: its version stays.
  const [path = ""] = request.originalUrl.split("?");
  response.setHeader(UPLOAD_HEADERS.url, `${publicUrlOf(deps, request)}${path}?${UPLOAD_ID}=${begun.id}`);
  response.json({});
}

const errors: readonly ServiceErrorCode[] = [
  "REALTIME_INVALID_ARGUMENT",
  "INVALID_JSON",
  "UNSUPPORTED_MEDIA_TYPE",
  "REQUEST_TIMEOUT",
  "REQUEST_TOO_LARGE",
  "FILE_NAME_TAKEN",
  "FILE_QUOTA_EXCEEDED",
  "FILE_UPLOAD_NOT_FOUND",
  "FILE_UPLOAD_TAKEN_OVER",
  "BATCH_IMAGE_QUEUE_FAILED",
];

/** The id of an upload stands for the key that began it. */
const keyOrUploadId: Credential = {
  schemes: [...headerOrQueryKey.schemes, "uploadId"],
  errors: headerOrQueryKey.errors,
  authenticate: (deps) => {
    const authenticated = headerOrQueryKey.authenticate(deps);
    return (request, response, next) =>
      request.query[UPLOAD_ID] === undefined ? authenticated(request, response, next) : next();
  },
};

export const nativeUploads: Surface = {
  tag: "files",
  vendor: "google",
  prefix: "/upload",
  operations: [
    {
      id: "uploadFile",
      method: "post",
      path: PATHS.uploads,
      summary:
        "Upload a file: begin, send the bytes to the URL of the answer, finish; or all in one multipart body",
      parameters: [
        "UploadId",
        "UploadCommand",
        "UploadOffset",
        "UploadProtocol",
        "UploadFileBytes",
        "UploadFileType",
      ],
      body: "StartUpload",
      bytesBody: ["*/*", "multipart/related", "multipart/form-data"],
      answers: {
        200: {
          description: "The state of the upload is in the headers; `file` is there once it is finished.",
          schema: "UploadedFile",
          headers: ["UploadStatus", "UploadUrl", "UploadReceived"],
        },
      },
      errors,
      handler: (deps) => async (request, response) => {
        if (request.query[UPLOAD_ID] !== undefined) return continueUpload(deps, request, response);
        const command = request.get(UPLOAD_HEADERS.command);
        if (command === undefined && request.is("multipart/*"))
          return uploadMultipart(deps, request, response);
        if (command?.trim() !== "start") {
          const problem = "must be start; or send the file as multipart/related or multipart/form-data";
          throw invalidArgument(UPLOAD_HEADERS.command, problem);
        }
        return start(deps, request, response);
      },
    },
  ],
  credential: keyOrUploadId,
  // For every response that no upload stands behind, errors before the handler among them.
  screen: () => (request, response, next) => {
    if (request.path.startsWith("/upload/")) response.setHeader(UPLOAD_HEADERS.status, "cancelled");
    next();
  },
};
