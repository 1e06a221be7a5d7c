import { Readable } from "node:stream";
import type { Request, Response } from "express";
import { IMAGE_EXTENSIONS } from "../../contract/image-formats.ts";
import { readIntact } from "../../domain/downloads/read-intact.ts";
import { safeFileName } from "../../kernel/files/file-names.ts";
import type { ApiDeps } from "../deps.ts";
import { sendDownload } from "../downloads/send-download.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { findOutput } from "./images/find-output.ts";

/** `GET …/{id}/items/{custom_id}/content`: the bytes of one image. */
export function content(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = callerOf(response);
    const { item, output } = await findOutput(deps.stores, request, response, { mustHaveEnded: true });
    const { imageIndex } = output;
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
