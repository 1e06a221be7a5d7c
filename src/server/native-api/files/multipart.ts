import type { Request, Response } from "express";
import { FIXED_LIMITS } from "../../../contract/limits.ts";
import type { ApiDeps } from "../../deps.ts";
import { callerOf } from "../../middleware/authenticate.ts";
import { boundaryOf } from "../../request-body/multipart.ts";
import { streamBody } from "../../request-body/stream-body.ts";
import { readFileFacts } from "./file-facts.ts";
import { readForm } from "./read-form.ts";
import { answerFile, showUpload } from "./upload-protocol.ts";

/** Of a body: the largest file with everything around it. */
const MOST_BYTES = FIXED_LIMITS.fileBytes + 1024 * 1024;

/**
 * Takes a file in one body: `multipart/related` has the JSON that describes it as its first part, `multipart/form-data` as
 * its field `metadata` or not at all. The bytes go to the disk while they come.
 */
export async function uploadMultipart(deps: ApiDeps, request: Request, response: Response): Promise<void> {
  const boundary = boundaryOf(request.get("content-type"));
  const upload = await deps.uploads.begin(callerOf(response).key.id, readFileFacts("", undefined), null);
  try {
    const chunk = await upload.open(0, 0);
    try {
      const form = readForm(boundary, chunk);
      await streamBody(request, response, { maxBytes: MOST_BYTES, add: form.add });
      const { metadata, fileType } = await form.end();
      upload.facts = readFileFacts(metadata, fileType);
      await chunk.finish();
    } finally {
      await chunk.close();
    }
  } finally {
    // Does nothing to a finished upload.
    await upload.cancel();
    showUpload(response, upload);
  }
  if (upload.file !== null) answerFile(deps, request, response, upload.file);
}
