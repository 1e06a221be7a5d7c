import type { Request, Response } from "express";
import type { Chunk } from "../../../domain/files/uploads.ts";
import type { ApiDeps } from "../../deps.ts";
import { storeForm } from "../../store-form.ts";
import { readFileFacts } from "./file-facts.ts";
import { readForm } from "./read-form.ts";
import { answerFile, showUpload } from "./upload-protocol.ts";

/**
 * Takes a file in one body: `multipart/related` has the JSON that describes it as its first part, `multipart/form-data` as
 * its field `metadata` or not at all.
 */
export async function uploadMultipart(deps: ApiDeps, request: Request, response: Response): Promise<void> {
  const begin = (boundary: string, chunk: Chunk) => {
    const form = readForm(boundary, chunk);
    const end = async () => {
      const { metadata, fileType } = await form.end();
      return readFileFacts(metadata, fileType);
    };
    return { add: form.add, end };
  };
  const upload = await storeForm(deps, request, response, begin, (failed) => showUpload(response, failed));
  showUpload(response, upload);
  if (upload.file !== null) answerFile(deps, request, response, upload.file);
}
