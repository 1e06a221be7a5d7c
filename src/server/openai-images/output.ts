import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { IMAGE_EXTENSIONS } from "../../contract/image-formats.ts";
import { findLinkedImage } from "../../domain/links/linked-images.ts";
import type { ApiDeps } from "../deps.ts";
import { sendDownload } from "../downloads/send-download.ts";

/** `GET /v1/images/outputs/{name}`: an image that was asked for by URL. Its name is the only credential. */
export function imageOutput(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { name } = request.params;
    const image = await findLinkedImage(deps, typeof name === "string" ? name : "");
    if (image === null) throw new ImgbatchError("REALTIME_OUTPUT_NOT_FOUND");
    const { id, blobKey, mimeType, sizeBytes } = image;
    const download = {
      sizeBytes,
      etag: id,
      mimeType,
      fileName: `image.${IMAGE_EXTENSIONS[mimeType]}`,
      open: async (range: { start: number; end: number }) => {
        const bytes = await deps.blobs.open(blobKey, range);
        if (bytes !== null) return bytes;
        throw new ImgbatchError("REALTIME_OUTPUT_NOT_FOUND");
      },
    };
    // Nobody's downloads are counted here: no key is known.
    await sendDownload(request, response, download, () => () => {});
  };
}
