import type { Request } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { type NativeBody, nativeSchemas } from "../../contract/native-api.ts";
import { PATHS } from "../../contract/routes.ts";
import type { FileFacts, FileRecord } from "../../domain/ports/stores.ts";
import { jsonExcess } from "../../kernel/json.ts";
import { isLongerThan } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { invalidArgument, parseArgument, requireStorable } from "../http/errors.ts";
import { publicUrlOf } from "../http/host.ts";
import { pageSizeOf, wholeNumber } from "../http/query.ts";
import { DEFAULT_TYPE, download, vendorFiles } from "../jobs/vendor-files.ts";
import type { Operation } from "../operation.ts";
import { camelKeys } from "./check-content.ts";

/** The most bytes of the JSON that describes a file. */
export const METADATA_BYTES = 64 * 1024;
const ID = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;

/**
 * Reads the JSON that describes a file; no text at all stands for no description. `mimeType` is the type that another part
 * of the request declares: it counts where the JSON has none. Throws `INVALID_JSON` and `REALTIME_INVALID_ARGUMENT`.
 */
export function readFileFacts(text: string, mimeType: string | undefined): FileFacts {
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
export function byteHeader(request: Request, name: string): number | null {
  const text = request.get(name);
  if (text === undefined) return null;
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw invalidArgument(name, "must be a whole number of bytes");
}

/** A file as the vendor's API shows it. */
export function fileView(
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

const { filePageDefault, filePageMax } = FIXED_LIMITS;

const files = vendorFiles({
  view: fileView,
  readPage: async (_deps, request) => {
    const limit = pageSizeOf(request, filePageDefault, filePageMax);
    const beforeSeq = wholeNumber(request, "pageToken", "page_token");
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
