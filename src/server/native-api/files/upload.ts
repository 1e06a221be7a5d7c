import type { Request, Response } from "express";
import type { ApiDeps } from "../../deps.ts";
import { callerOf } from "../../middleware/authenticate.ts";
import { publicUrlOf } from "../../public-url.ts";
import { streamBody } from "../../request-body/stream-body.ts";
import { fieldError } from "../../request-problems.ts";
import { continueUpload } from "./continue-upload.ts";
import { byteHeader, METADATA_BYTES, readFileFacts } from "./file-facts.ts";
import { uploadMultipart } from "./multipart.ts";
import { showUpload, UPLOAD_HEADERS, UPLOAD_ID } from "./upload-protocol.ts";

/**
 * `POST /upload/…/files`: begins a resumable upload, goes on with one (`upload_id`), or takes a whole file with its
 * description in one multipart body.
 */
export function upload(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    if (request.query[UPLOAD_ID] !== undefined) return continueUpload(deps, request, response);
    const command = request.get(UPLOAD_HEADERS.command);
    if (command === undefined && request.is("multipart/*")) return uploadMultipart(deps, request, response);
    if (command?.trim() !== "start") {
      const problem = "must be start; or send the file as multipart/related or multipart/form-data";
      throw fieldError("REALTIME_INVALID_ARGUMENT", UPLOAD_HEADERS.command, problem);
    }
    return start(deps, request, response);
  };
}

async function start(deps: ApiDeps, request: Request, response: Response): Promise<void> {
  const protocol = request.get(UPLOAD_HEADERS.protocol) ?? "resumable";
  if (protocol !== "resumable") {
    throw fieldError("REALTIME_INVALID_ARGUMENT", UPLOAD_HEADERS.protocol, "must be resumable");
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
