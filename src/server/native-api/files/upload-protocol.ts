import type { Request, Response } from "express";
import type { UploadedFile } from "../../../contract/native-api/files.ts";
import type { Upload } from "../../../domain/files/uploads.ts";
import type { FileRecord } from "../../../domain/ports/files.ts";
import type { ApiDeps } from "../../deps.ts";
import { fileView } from "./file-view.ts";

/** Headers of uploads, as the vendor's API names them. */
export const UPLOAD_HEADERS = {
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
export const UPLOAD_ID = "upload_id";

/** Writes the state of an upload into the headers of the response, whether that is a success or an error. */
export function showUpload(response: Response, upload: Upload): void {
  response.setHeader(UPLOAD_HEADERS.status, upload.state);
  response.setHeader(UPLOAD_HEADERS.received, upload.receivedBytes);
}

/** Responds with a finished upload. */
export function answerFile(deps: ApiDeps, request: Request, response: Response, record: FileRecord): void {
  response.setHeader(UPLOAD_HEADERS.status, "final");
  const body: UploadedFile = { file: fileView(deps, request, record) };
  response.json(body);
}
