import type { Request, Response } from "express";
import { ImgbatchError } from "../../../contract/errors.ts";
import { FIXED_LIMITS } from "../../../contract/limits.ts";
import type { NativeFileList } from "../../../contract/native-jobs.ts";
import { deleteFile, findFile } from "../../../domain/files/files.ts";
import type { FileRecord } from "../../../domain/ports/files.ts";
import type { ApiDeps } from "../../deps.ts";
import { type Download, sendDownload } from "../../downloads/send-download.ts";
import { callerOf } from "../../middleware/authenticate.ts";
import { pageSizeOf, wholeNumber } from "../paging.ts";
import { DEFAULT_TYPE } from "./file-facts.ts";
import { fileView } from "./file-view.ts";

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
