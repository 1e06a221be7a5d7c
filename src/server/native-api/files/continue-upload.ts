import type { Request, Response } from "express";
import { ImgbatchError } from "../../../contract/errors.ts";
import type { Upload } from "../../../domain/files/uploads.ts";
import { keyState } from "../../../domain/keys.ts";
import type { ApiDeps } from "../../deps.ts";
import { announcedLength, streamBody } from "../../request-body/stream-body.ts";
import { fieldError } from "../../request-problems.ts";
import { byteHeader } from "./file-facts.ts";
import { answerFile, showUpload, UPLOAD_HEADERS, UPLOAD_ID } from "./upload-protocol.ts";

const COMMANDS = ["upload", "finalize", "query", "cancel"];

/**
 * Goes on with an upload: takes a chunk, finishes or cancels it, or reports how much has come. The id of the upload is the
 * only credential; the key that began it must still be active.
 */
export async function continueUpload(deps: ApiDeps, request: Request, response: Response): Promise<void> {
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
    throw fieldError(
      "REALTIME_INVALID_ARGUMENT",
      UPLOAD_HEADERS.offset,
      "is required: where the bytes belong",
    );
  }
  try {
    const chunk = await upload.open(offset, isUpload ? announcedLength(request) : 0);
    try {
      if (isUpload) await streamBody(request, response, chunk);
      // Also a chunk without a byte must still have the upload.
      await chunk.add(Buffer.alloc(0));
      if (commands.includes("finalize")) await chunk.finish();
    } finally {
      await chunk.close();
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

/** The error with the name of the header that a problem of the upload is about. */
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
  response.locals.key = key;
  return upload;
}

/** The commands of a request: `upload, finalize`. Throws `REALTIME_INVALID_ARGUMENT`. */
function commandsOf(request: Request): string[] {
  const commands = (request.get(UPLOAD_HEADERS.command) ?? "").split(",").map((word) => word.trim());
  if (commands.every((command) => COMMANDS.includes(command))) return commands;
  const problem = `must be upload, finalize, both with a comma, query or cancel`;
  throw fieldError("REALTIME_INVALID_ARGUMENT", UPLOAD_HEADERS.command, problem);
}
