import { Readable } from "node:stream";
import type { Request, Response } from "express";
import { ImgbatchError } from "../../../contract/errors.ts";
import { IMAGE_EXTENSIONS } from "../../../contract/image-formats.ts";
import { readIntact } from "../../../domain/downloads/read-intact.ts";
import { safeFileName } from "../../../kernel/files/file-names.ts";
import type { ApiDeps } from "../../deps.ts";
import { sendDownload } from "../../downloads/send-download.ts";
import { callerOf } from "../../middleware/authenticate.ts";
import { findBatch, findItem } from "../find-batch.ts";

/** `GET …/{id}/items/{custom_id}/references/{index}`: the bytes of a reference image, as they were sent. */
export function reference({ stores, blobs, slots }: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = callerOf(response);
    const batch = await findBatch(stores, caller, request.params.id);
    const item = await findItem(stores, batch, request.params.custom_id);
    const index = Number(request.params.index);
    const found = (await stores.read.references.ofSource(batch.id, item.sourceIndex))[index];
    if (found?.blobKey == null || found.sha256 === null) {
      throw new ImgbatchError("BATCH_IMAGE_ITEM_NOT_FOUND", "The item has no such reference image here.");
    }
    if (batch.inputsPurgedAtMs !== null) {
      const message = "The reference images of this batch were deleted.";
      throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED", message);
    }
    const { blobKey, sha256, mimeType } = found;
    const sizeBytes = await blobs.sizeOf(blobKey);
    if (sizeBytes === null) throw new ImgbatchError("BATCH_IMAGE_RESULT_MISSING");
    const download = {
      sizeBytes,
      etag: sha256,
      mimeType,
      fileName: `${safeFileName(`${item.customId}_reference_${index + 1}`)}.${IMAGE_EXTENSIONS[mimeType]}`,
      open: async ({ start, end }: { start: number; end: number }) => {
        const bytes = await readIntact(blobs, { blobKey, sizeBytes, sha256 });
        return Readable.from([bytes.subarray(start, end + 1)]);
      },
    };
    await sendDownload(request, response, download, () => slots.take(caller.key.id));
  };
}
