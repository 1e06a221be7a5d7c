import type { Request, Response } from "express";
import { dropOutputs } from "../../domain/batches/delete-outputs.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { showBatch } from "./batch-view.ts";
import { findBatch } from "./find-batch.ts";

/** `DELETE …/{id}/outputs`: deletes the image files and keeps the record. */
export function deleteOutputs(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = callerOf(response);
    const { id } = await findBatch(deps.stores, caller, request.params.id);
    await dropOutputs(deps, id, deps.clock.nowMs());
    const batch = await findBatch(deps.stores, caller, id);
    response.json(await showBatch(deps, batch));
  };
}
