import type { Request, Response } from "express";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { showBatch } from "./batch-view.ts";
import { findBatch } from "./find-batch.ts";

/** A larger number of batches that come first helps nobody, and costs time to count. */
const MOST_COUNTED = 1000;

/** `GET /v1/images/batches/{id}`: the batch as it is now. */
export function get(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const batch = await findBatch(deps.stores, callerOf(response), request.params.id);
    const isQueued = batch.status === "queued";
    const behind = isQueued ? await deps.stores.read.batches.openBefore(batch, MOST_COUNTED) : null;
    response.json(await showBatch(deps, batch, behind));
  };
}
