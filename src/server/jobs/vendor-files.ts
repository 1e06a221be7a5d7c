import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { deleteFile, findFile, type GeneratedFile, type Upload } from "../../domain/files/uploads.ts";
import type { FileFacts, FileRecord, Repositories } from "../../domain/ports/stores.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../http/authenticate.ts";
import { downloadAnswers, sendDownload } from "../http/downloads.ts";
import type { Operation } from "../operation.ts";
import { streamBody } from "../request-body/json-body.ts";
import { boundaryOf } from "../request-body/multipart.ts";

/** The page of a list that a request asks for. */
export interface ListPage<Row, Filter> {
  limit: number;
  /** What is listed, and where the page begins. */
  filter: Filter;
  /** The body with these views. `found` has one row more than the page if another page follows. */
  body(views: object[], found: readonly Row[]): object;
}

/** Sends a page of a list: the rows that `find` returns, as `view` shows them. */
export async function sendPage<Row, Filter>(
  response: Response,
  { limit, filter, body }: ListPage<Row, Filter>,
  find: (asked: Filter & { limit: number }) => Promise<Row[]>,
  view: (row: Row) => object | Promise<object>,
): Promise<void> {
  // One more shows whether there is another page.
  const found = await find({ ...filter, limit: limit + 1 });
  const views: object[] = [];
  for (const row of found.slice(0, limit)) views.push(await view(row));
  response.json(body(views, found));
}

type FileFilter = Omit<Parameters<Repositories["files"]["page"]>[0], "apiKeyId" | "nowMs" | "limit">;
type ListedFile = FileRecord & { seq: number };

/** How one vendor's API lists and shows uploaded files. All APIs have the same files, under the same ids. */
interface FileDialect {
  view(deps: ApiDeps, request: Request, file: FileRecord): object;
  readPage(deps: ApiDeps, request: Request, keyId: string): Promise<ListPage<ListedFile, FileFilter>>;
  /** The answer to the deletion of a file. */
  deleted(id: string): object;
  /** The files with the results of jobs, where they can be shown and deleted. Default: they can only be downloaded. */
  results?: {
    view(id: string, file: GeneratedFile): object;
    /** Returns whether the key had such a file. */
    remove(deps: ApiDeps, keyId: string, id: string): Promise<boolean>;
  };
}

const oneFile = { parameters: ["File"], errors: ["FILE_NOT_FOUND"] } as const;

/** The operations on files that all vendors have, but for their ids, paths and words. */
export function vendorFiles({ view, readPage, deleted, results }: FileDialect) {
  return {
    /** The uploaded files of the key. */
    list: {
      method: "get",
      handler: (deps) => async (request, response) => {
        const { id: apiKeyId } = callerOf(response).key;
        const page = await readPage(deps, request, apiKeyId);
        const nowMs = deps.clock.nowMs();
        await sendPage(
          response,
          page,
          (asked) => deps.stores.read.files.page({ apiKeyId, nowMs, ...asked }),
          (file) => view(deps, request, file),
        );
      },
    },
    get: {
      ...oneFile,
      method: "get",
      handler: (deps) => async (request, response) => {
        const { id, keyId, file } = await namedFile(deps, request, response);
        if (file !== null) response.json(view(deps, request, file));
        else if (results === undefined) throw fileNotFound(id);
        // Its size is known only after the results were read.
        else await withGenerated(deps, keyId, id, async (made) => response.json(results.view(id, made)));
      },
    },
    remove: {
      ...oneFile,
      method: "delete",
      handler: (deps) => async (request, response) => {
        const { id, keyId, file } = await namedFile(deps, request, response);
        if (file !== null) await deleteFile(deps, file);
        else if (!(await results?.remove(deps, keyId, id))) throw fileNotFound(id);
        response.json(deleted(id));
      },
    },
  } as const satisfies Record<string, Partial<Operation>>;
}

/** The type of a file for which nobody declares one. */
export const DEFAULT_TYPE = "application/octet-stream";
/** A type that fits into a header; callers declare any text. */
const MIME_TYPE = /^[\w.+-]{1,100}\/[\w.+-]{1,100}$/;

/** The download of a file that was uploaded or that the service makes, but for its id and its path. */
export const download = {
  method: "get",
  summary: "The bytes of a file",
  parameters: ["File", "Range", "IfRange", "IfNoneMatch"],
  answers: downloadAnswers("The bytes, with the declared type of the file.", ["*/*"]),
  errors: ["FILE_NOT_FOUND", "BATCH_IMAGE_DOWNLOAD_LIMITED", "BATCH_IMAGE_RESULT_MISSING"],
  handler: (deps) => async (request, response) => {
    const { id: fileName, keyId, file } = await namedFile(deps, request, response);
    if (file !== null) {
      const { sizeBytes, sha256: etag } = file;
      const mimeType = MIME_TYPE.test(file.mimeType) ? file.mimeType : DEFAULT_TYPE;
      const open = (range: { start: number; end: number }) => openFile(deps, file, range);
      const content = { sizeBytes, etag, mimeType, fileName, open };
      await sendDownload(request, response, content, () => deps.slots.take(keyId));
      return;
    }
    await withGenerated(deps, keyId, fileName, (made) =>
      sendDownload(request, response, { ...made, fileName }, () => () => {}),
    );
  },
} as const satisfies Partial<Operation>;

async function openFile(
  { blobs }: ApiDeps,
  { blobKey, sizeBytes }: FileRecord,
  range: { start: number; end: number },
) {
  // A shorter file would end the response before its announced length.
  const isWhole = (await blobs.sizeOf(blobKey)) === sizeBytes;
  const bytes = isWhole ? await blobs.open(blobKey, range) : null;
  if (bytes !== null) return bytes;
  throw new ImgbatchError("BATCH_IMAGE_RESULT_MISSING", "The stored file is missing or damaged.");
}

/** The id in the path, and the uploaded file that it names; null when it names none of this key. */
async function namedFile(deps: ApiDeps, request: Request, response: Response) {
  const id = typeof request.params.file === "string" ? request.params.file : "";
  const keyId = callerOf(response).key.id;
  return { id, keyId, file: await findFile(deps.stores.read, keyId, id, deps.clock.nowMs()) };
}

/** Passes on a file that the service makes. It costs work even when none of its bytes are sent. */
async function withGenerated(
  deps: ApiDeps,
  keyId: string,
  id: string,
  work: (file: GeneratedFile) => Promise<unknown>,
): Promise<void> {
  const leaveSlot = deps.slots.take(keyId);
  try {
    const made = await deps.findGeneratedFile(keyId, id);
    if (made === null) throw fileNotFound(id);
    await work(made);
  } finally {
    leaveSlot();
  }
}

function fileNotFound(id: string): ImgbatchError {
  return new ImgbatchError("FILE_NOT_FOUND", `files/${id} is not found for this key.`, { param: "file" });
}

/** The rest of a body, around its file. */
const MORE_BYTES = 1024 * 1024;

/** A form with one file. */
export interface FileForm {
  /** Takes the next bytes of the body. The bytes of the file are stored when this resolves. */
  add(bytes: Buffer): Promise<void>;
  /** Returns the facts of the file after the last bytes. */
  end(): Promise<FileFacts>;
}

/**
 * Stores the file of a multipart body (RFC 2046). Its bytes go to the disk while they come. Returns the upload; one that
 * failed is cancelled, and passed to `onFailure`.
 */
export async function storeForm(
  deps: ApiDeps,
  request: Request,
  response: Response,
  readForm: (boundary: string, upload: Upload) => FileForm,
  onFailure: (upload: Upload) => void = () => {},
): Promise<Upload> {
  const boundary = boundaryOf(request.get("content-type"));
  const unknown = { id: null, displayName: null, mimeType: "" };
  const upload = await deps.uploads.begin(callerOf(response).key.id, unknown, null);
  try {
    await upload.open(0, 0);
    try {
      const form = readForm(boundary, upload);
      const maxBytes = deps.limits.uploadBytes + MORE_BYTES;
      await streamBody(request, response, { maxBytes, add: form.add });
      upload.facts = await form.end();
      await upload.finish();
    } finally {
      await upload.close();
    }
  } catch (error) {
    await upload.cancel();
    onFailure(upload);
    throw error;
  }
  return upload;
}
