import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { ApiDeps } from "../deps.ts";
import { endedAs, ownJob } from "../jobs/own-job.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { invalidQuery, queryText } from "../query/query.ts";
import { batchView } from "./batch-view.ts";
import { batchOfOpenaiId } from "./ids.ts";
import { listPage, pageLimit } from "./list-page.ts";

/** `GET /v1/batches`: the batches of the key that were made with this API, newest first, page by page. */
export function listOpenaiBatches(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { id: apiKeyId } = callerOf(response).key;
    const limit = pageLimit(request, FIXED_LIMITS.jobPageDefault, FIXED_LIMITS.jobPageMax);
    const after = await placeOf(deps, apiKeyId, queryText(request, "after"));
    const found = await deps.stores.read.batches.page({
      apiKeyId,
      source: "openai",
      ...(after && { after }),
      // One more shows whether there is another page.
      limit: limit + 1,
    });
    const views = [];
    for (const batch of found) views.push(await viewOf(deps, batch));
    response.json(listPage(views, limit));
  };
}

async function placeOf(deps: ApiDeps, apiKeyId: string, id: string | undefined) {
  if (id === undefined) return null;
  const last = await ownBatch(deps, apiKeyId, id);
  if (last === null) throw invalidQuery("after", "must be the id of a batch of this list");
  return deps.stores.read.batches.placeOf(last.id);
}

/** `GET /v1/batches/{id}`. */
export function getOpenaiBatch(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    response.json(await viewOf(deps, await batchOf(deps, request, response)));
  };
}

/** `POST /v1/batches/{id}/cancel`: stops the batch; an ended one stays as it is. */
export function cancelOpenaiBatch(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { id } = await batchOf(deps, request, response);
    await deps.cancel(id);
    response.json(await viewOf(deps, await batchOf(deps, request, response)));
  };
}

async function viewOf({ stores }: ApiDeps, batch: BatchRecord) {
  return batchView(batch, await endedAs(stores, batch));
}

async function batchOf(deps: ApiDeps, request: Request, response: Response): Promise<BatchRecord> {
  const batch = await ownBatch(deps, callerOf(response).key.id, String(request.params.id));
  if (batch !== null) return batch;
  throw new ImgbatchError("JOB_NOT_FOUND");
}

function ownBatch({ stores }: ApiDeps, keyId: string, id: string): Promise<BatchRecord | null> {
  return ownJob(stores, keyId, "openai", batchOfOpenaiId(id));
}
