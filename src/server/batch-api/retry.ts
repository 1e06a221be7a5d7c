import type { Request, Response } from "express";
import { IDEMPOTENCY_REPLAYED_HEADER } from "../../contract/routes.ts";
import { retryFailed } from "../../domain/batches/retry-failed.ts";
import { consentingCaller } from "../consent.ts";
import type { ApiDeps } from "../deps.ts";
import { idempotencyKeyOf } from "../idempotency-key.ts";

import { findBatch } from "./find-batch.ts";
import { showBatch } from "./show-batch.ts";

/** `POST …/{id}/retry`: makes the failed items again, as a new batch; or returns the one that the same key made. */
export function retry(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "BATCH_IMAGE_INVALID_ITEMS");
    const { id } = await findBatch(deps.stores, caller, request.params.id);
    const idempotencyKey = idempotencyKeyOf(request, "BATCH_IMAGE_INVALID_ITEMS");
    const { consentMicroUsd } = caller;
    const { batch, replayed } = await retryFailed(deps, id, { idempotencyKey, consentMicroUsd });
    if (replayed) response.setHeader(IDEMPOTENCY_REPLAYED_HEADER, "true");
    else deps.onBatchCreated(batch.id);
    response.json(await showBatch(deps, batch));
  };
}
