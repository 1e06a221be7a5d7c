import type { Request, Response } from "express";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { batchView } from "./batch-view.ts";
import { findBatch } from "./find-batch.ts";

/** `GET /v1/images/batches/{id}`: the batch as it is now. */
export function get(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const batch = await findBatch(deps.stores, callerOf(response), request.params.id);
    response.json(batchView(batch, deps.waitingOf(batch.id), deps.jobsOf(batch.id)));
  };
}
