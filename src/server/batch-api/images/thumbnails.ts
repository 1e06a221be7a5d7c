import type { Request, Response } from "express";
import type { ItemThumbnail } from "../../../contract/batch-api.ts";
import { ImgbatchError } from "../../../contract/errors.ts";
import { FIXED_LIMITS } from "../../../contract/limits.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import type { ApiDeps } from "../../deps.ts";
import { callerOf } from "../../middleware/authenticate.ts";
import { findBatch } from "../find-batch.ts";
import { readItems } from "../items.ts";
import { keepInBrowser } from "./thumbnail.ts";

/**
 * `GET …/{id}/thumbnails`: the small WebPs of the first images of a page of items, in request order. It makes none: the
 * first request for one alone does. A browser spends more on a request than on a small picture.
 */
export function thumbnails({ stores, thumbnails, thumbnailSlots }: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = callerOf(response);
    const batch = await findBatch(stores, caller, request.params.id);
    if (batch.status === "output_deleted") throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED");
    const leaveSlot = thumbnailSlots.take(caller.key.id);
    try {
      const { thumbnailPageMax: max } = FIXED_LIMITS;
      const { items, pageOf } = await readItems({ stores }, request, batch, { fallback: max, max });
      const outputs = await stores.read.outputs.ofItems(items.map(({ id }) => id));
      const first = outputs.filter(({ imageIndex }) => imageIndex === 0);
      const small = new Map(
        await Promise.all(
          first.map(async (output) => [output.itemId, await thumbnails.find(output, 256)] as const),
        ),
      );
      const isWhole = isTerminal(batch.status) && ![...small.values()].includes(null);
      if (isWhole) keepInBrowser(response);
      else response.setHeader("Cache-Control", "no-store");
      response.json(
        pageOf(({ id, customId }): ItemThumbnail => {
          return { custom_id: customId, data: small.get(id)?.toString("base64") ?? null };
        }),
      );
    } finally {
      leaveSlot();
    }
  };
}
