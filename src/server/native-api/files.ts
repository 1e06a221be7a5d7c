import type { Request, Response } from "express";
import type { z } from "zod";
import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { type NativeFile, type NativeFileList, startUploadSchema } from "../../contract/native-jobs.ts";
import { PATHS } from "../../contract/routes.ts";
import { inWords } from "../../contract/text-rules.ts";
import { deleteFile, findFile } from "../../domain/files/files.ts";
import type { FileFacts, FileRecord } from "../../domain/ports/files.ts";
import { jsonExcess } from "../../kernel/json/json-shape.ts";
import { hasUnstorableText, isLongerThan } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../http/authenticate.ts";
import { type Download, sendDownload } from "../http/downloads.ts";
import { fieldError, schemaProblem } from "../http/errors.ts";
import { publicUrlOf } from "../http/host.ts";
import { pageSizeOf, wholeNumber } from "../http/query.ts";
import { camelKeys } from "./check-content.ts";

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

/** A file as the vendor's API shows it. */
export function fileView(deps: Pick<ApiDeps, "server">, request: Request, file: FileRecord): NativeFile {
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

/** A type that fits into a header; callers declare any text. */
const MIME_TYPE = /^[\w.+-]{1,100}\/[\w.+-]{1,100}$/;

/** `GET …/files`: the uploaded files of the key, newest first, page by page. */
export function listFiles(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { filePageDefault, filePageMax } = FIXED_LIMITS;
    const limit = pageSizeOf(request, filePageDefault, filePageMax);
    const beforeSeq = wholeNumber(request, "pageToken", "page_token");
    const { key } = callerOf(response);
    const found = await deps.stores.read.files.page({
      apiKeyId: key.id,
      nowMs: deps.clock.nowMs(),
      // One more shows whether there is another page.
      limit: limit + 1,
      order: "newest-first",
      ...(beforeSeq === 0 ? {} : { afterSeq: beforeSeq }),
    });
    const page = found.slice(0, limit);
    const last = page.at(-1);
    const list: NativeFileList = {
      files: page.map((file) => fileView(deps, request, file)),
      ...(found.length > limit && last ? { nextPageToken: String(last.seq) } : {}),
    };
    response.json(list);
  };
}

/** `GET …/files/{file}`. */
export function getFile(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    response.json(fileView(deps, request, await fileOf(deps, request, response)));
  };
}

/** `DELETE …/files/{file}`. */
export function removeFile(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    await deleteFile(deps, await fileOf(deps, request, response));
    response.json({});
  };
}

/** `GET …/files/{file}:download`: the bytes of an uploaded file, or of one that the service makes. */
export function downloadFile(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { key } = callerOf(response);
    const id = fileParameter(request);
    const own = await findFile(deps.stores.read, key.id, id, deps.clock.nowMs());
    const takeSlot = () => deps.slots.take(key.id);
    if (own !== null) {
      await sendDownload(request, response, { ...contentOf(deps, own), fileName: id }, takeSlot);
      return;
    }
    // A file that the service makes costs work even when none of its bytes are sent.
    const leaveSlot = takeSlot();
    try {
      const made = await deps.findGeneratedFile(key.id, id);
      if (made === null) throw fileNotFound(id);
      await sendDownload(request, response, { ...made, fileName: id }, () => () => {});
    } finally {
      leaveSlot();
    }
  };
}

function contentOf(
  { blobs }: ApiDeps,
  { blobKey, sizeBytes, sha256, mimeType }: FileRecord,
): Omit<Download, "fileName"> {
  return {
    sizeBytes,
    etag: sha256,
    mimeType: MIME_TYPE.test(mimeType) ? mimeType : DEFAULT_TYPE,
    open: async (range) => {
      // A shorter file would end the response before its announced length.
      const isWhole = (await blobs.sizeOf(blobKey)) === sizeBytes;
      const bytes = isWhole ? await blobs.open(blobKey, range) : null;
      if (bytes !== null) return bytes;
      throw new ImgbatchError("BATCH_IMAGE_RESULT_MISSING", "The stored file is missing or damaged.");
    },
  };
}

async function fileOf(deps: ApiDeps, request: Request, response: Response): Promise<FileRecord> {
  const id = fileParameter(request);
  const file = await findFile(deps.stores.read, callerOf(response).key.id, id, deps.clock.nowMs());
  if (file !== null) return file;
  throw fileNotFound(id);
}

/** The id of the file in the path. */
export function fileParameter(request: Request): string {
  const { file } = request.params;
  return typeof file === "string" ? file : "";
}

/** The error for a file that this key does not have. */
export function fileNotFound(id: string): ImgbatchError {
  return new ImgbatchError("FILE_NOT_FOUND", `files/${id} is not found for this key.`, { param: "file" });
}
