import type { Request, Response } from "express";
import { batchView } from "../../domain/batches/batch-view.ts";
import { deleteOutputs as markOutputsDeleted, purgeOutputs } from "../../domain/batches/delete-outputs.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { findBatch } from "./find-batch.ts";

/** `DELETE …/{id}/outputs`: the image files go, the record stays. */
export function deleteOutputs(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = callerOf(response);
    const { id } = findBatch(deps.stores, caller, request.params.id);
    const nowMs = deps.clock.nowMs();
    if (await markOutputsDeleted(deps.stores, id, nowMs)) {
      deps.feed.publish({ type: "batch", batchId: id, status: "output_deleted" });
      await purgeOutputs(deps, id, nowMs).catch((error) => {
        const facts = { batch: id, error: String(error) };
        deps.log.warn("image files could not be deleted; the next sweep tries again", facts);
      });
    }
    response.json(batchView(findBatch(deps.stores, caller, id)));
  };
}
