import type { Request, Response } from "express";
import type { Chunk, Upload } from "../../domain/files/upload.ts";
import type { FileFacts } from "../../domain/ports/files.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../http/authenticate.ts";
import { streamBody } from "../request-body/json-body.ts";
import { boundaryOf } from "../request-body/multipart.ts";

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
  readForm: (boundary: string, chunk: Chunk) => FileForm,
  onFailure: (upload: Upload) => void = () => {},
): Promise<Upload> {
  const boundary = boundaryOf(request.get("content-type"));
  const unknown = { id: null, displayName: null, mimeType: "" };
  const upload = await deps.uploads.begin(callerOf(response).key.id, unknown, null);
  try {
    const chunk = await upload.open(0, 0);
    try {
      const form = readForm(boundary, chunk);
      const maxBytes = deps.limits.uploadBytes + MORE_BYTES;
      await streamBody(request, response, { maxBytes, add: form.add });
      upload.facts = await form.end();
      await chunk.finish();
    } finally {
      await chunk.close();
    }
  } catch (error) {
    await upload.cancel();
    onFailure(upload);
    throw error;
  }
  return upload;
}
