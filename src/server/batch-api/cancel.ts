import type { Request, Response } from "express";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { showBatch } from "./batch-view.ts";
import { findBatch } from "./find-batch.ts";

/** `POST …/{id}/cancel`: stops the batch; an ended one stays as it is. */
export function cancel(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = callerOf(response);
    const { id } = await findBatch(deps.stores, caller, request.params.id);
    await deps.cancel(id);
    const batch = await findBatch(deps.stores, caller, id);
    response.json(await showBatch(deps, batch));
  };
}
