import type { Request, Response } from "express";
import { deleteRecord as deleteRecordOf } from "../../domain/batches/delete-record.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { findBatch } from "./find-batch.ts";

/** `DELETE …/{id}`: hides the record of an ended batch. */
export function deleteRecord(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const batch = await findBatch(deps.stores, callerOf(response), request.params.id);
    await deleteRecordOf(deps, batch.id, deps.clock.nowMs());
    response.status(204).end();
  };
}
