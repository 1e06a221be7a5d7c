import type { Request, Response } from "express";
import { deleteImages } from "../../../domain/batches/delete-images.ts";
import type { ApiDeps } from "../../deps.ts";
import { callerOf } from "../../middleware/authenticate.ts";
import { findBatch, findItem } from "../find-batch.ts";

/** `DELETE …/{id}/items/{custom_id}/content`: deletes the images of one item. */
export function deleteContent(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const batch = await findBatch(deps.stores, callerOf(response), request.params.id);
    const item = await findItem(deps.stores, batch, request.params.custom_id);
    await deleteImages(deps, batch.id, item);
    response.status(204).end();
  };
}
