import type { Request, Response } from "express";
import { retryBatchSchema } from "../../contract/batch-api.ts";
import { IDEMPOTENCY_REPLAYED_HEADER } from "../../contract/routes.ts";
import { inWords } from "../../contract/text-rules.ts";
import { retryFailed } from "../../domain/batches/retry-failed.ts";
import { consentingCaller } from "../consent.ts";
import type { ApiDeps } from "../deps.ts";
import { idempotencyKeyOf } from "../idempotency-key.ts";
import { plainFormat, shapeOf } from "../request-body/body-shape.ts";
import { withJsonBody } from "../request-body/with-json-body.ts";
import { schemaProblem } from "../request-problems.ts";
import { showBatch } from "./batch-view.ts";
import { findBatch } from "./find-batch.ts";

const SHAPE = shapeOf(retryBatchSchema);

/** `POST …/{id}/retry`: makes failed items again, as a new batch; or returns the one that the same key made. */
export function retry(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "BATCH_IMAGE_INVALID_ITEMS");
    const { id } = await findBatch(deps.stores, caller, request.params.id);
    const idempotencyKey = idempotencyKeyOf(request, "BATCH_IMAGE_INVALID_ITEMS");
    const customIds = hasBody(request) ? await readCustomIds(deps, request, response) : null;
    const { consentMicroUsd } = caller;
    const { batch, replayed } = await retryFailed(deps, id, { idempotencyKey, consentMicroUsd, customIds });
    if (replayed) response.setHeader(IDEMPOTENCY_REPLAYED_HEADER, "true");
    else deps.onBatchCreated(batch);
    response.json(await showBatch(deps, batch));
  };
}

function hasBody(request: Request): boolean {
  return request.get("transfer-encoding") !== undefined || Number(request.get("content-length") ?? 0) > 0;
}

function readCustomIds(deps: ApiDeps, request: Request, response: Response): Promise<string[] | null> {
  const format = plainFormat(SHAPE, "BATCH_IMAGE_INVALID_ITEMS");
  const options = { ...deps, maxBytes: deps.limits.createBodyBytes, format, images: null };
  return withJsonBody(request, response, options, async ({ value }) => {
    const parsed = retryBatchSchema.safeParse(value, { error: inWords });
    if (!parsed.success) throw schemaProblem(parsed.error, "BATCH_IMAGE_INVALID_ITEMS");
    return parsed.data.custom_ids ?? null;
  });
}
