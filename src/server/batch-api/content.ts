import { Readable } from "node:stream";
import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { IMAGE_EXTENSIONS } from "../../contract/images/image-types.ts";
import { isTerminal } from "../../contract/statuses.ts";
import { readIntact } from "../../domain/downloads/read-intact.ts";
import { safeFileName } from "../../kernel/files/file-names.ts";
import type { ApiDeps } from "../deps.ts";
import { sendDownload } from "../downloads/send-download.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { queryText } from "../query/query.ts";
import { findBatch, findItem } from "./find-batch.ts";

/** `GET …/{id}/items/{custom_id}/content`: the bytes of one image. */
export function content(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = callerOf(response);
    const batch = await findBatch(deps.stores, caller, request.params.id);
    const item = await findItem(deps.stores, batch, request.params.custom_id);
    if (batch.status === "output_deleted") throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED");
    if (!isTerminal(batch.status)) throw new ImgbatchError("BATCH_IMAGE_NOT_READY");
    if (item.status !== "success") throw new ImgbatchError("BATCH_IMAGE_ITEM_FAILED");
    const imageIndex = readImageIndex(request);
    const output = (await deps.stores.read.outputs.ofItem(item.id)).find((o) => o.imageIndex === imageIndex);
    if (!output) throw indexOutOfRange(item.imageCount);
    const name = imageIndex === 0 ? item.customId : `${item.customId}_${imageIndex + 1}`;
    const { sizeBytes, sha256, mimeType } = output;
    const download = {
      sizeBytes,
      etag: sha256,
      mimeType,
      fileName: `${safeFileName(name)}.${IMAGE_EXTENSIONS[mimeType]}`,
      open: async ({ start, end }: { start: number; end: number }) => {
        const bytes = await readIntact(deps.blobs, output);
        return Readable.from([bytes.subarray(start, end + 1)]);
      },
    };
    await sendDownload(request, response, download, () => deps.slots.take(caller.key.id));
  };
}

function readImageIndex(request: Request): number {
  const text = queryText(request, "image_index") ?? "0";
  if (!/^\d{1,9}$/.test(text)) throw indexOutOfRange(null);
  return Number(text);
}

function indexOutOfRange(imageCount: number | null): ImgbatchError {
  const range = imageCount === null ? "an integer from 0" : `0 to ${imageCount - 1}`;
  return new ImgbatchError("BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE", `image_index: must be ${range}`, {
    param: "image_index",
  });
}
