import type { Request, Response } from "express";
import { IDEMPOTENCY_REPLAYED_HEADER } from "../../contract/routes.ts";
import { createBatch, isKnownRequest } from "../../domain/batches/create-batch.ts";
import { consentingCaller } from "../consent.ts";
import type { ApiDeps } from "../deps.ts";
import { idempotencyKeyOf } from "../idempotency-key.ts";
import type { ImageTexts } from "../request-body/image-extraction.ts";
import { withJsonBody } from "../request-body/with-json-body.ts";
import { showBatch } from "./batch-view.ts";
import { checkRequest } from "./request/check-request.ts";

const IMAGES: Pick<ImageTexts, "path" | "base64"> = {
  path: [["items"], "*", ["reference_images"], "*", ["data"]],
  base64: "strict",
};

/** `POST /v1/images/batches`: accepts a batch, or returns the one that the same idempotency key made. */
export function create(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "BATCH_IMAGE_INVALID_ITEMS");
    const images = { ...IMAGES, maxBytes: deps.limits.referenceImageBytes, blobs: deps.blobs };
    const { limits, bodyBudgets, jsonParser } = deps;
    const options = { bodyBudgets, jsonParser, maxBytes: limits.createBodyBytes, images };
    const { batch, replayed } = await withJsonBody(request, response, options, async ({ value, sent }) => {
      const idempotencyKey = idempotencyKeyOf(request, "BATCH_IMAGE_INVALID_ITEMS");
      const { models, inspector, storageUriPrefixes } = deps;
      const checked = await checkRequest(value, {
        limits,
        models,
        group: caller.group,
        inspector,
        storageUriPrefixes,
        sent,
        isKnown: (hash) => isKnownRequest(deps.stores.read, caller, idempotencyKey, hash),
      });
      return createBatch(deps, caller, checked, idempotencyKey);
    });
    if (replayed) response.setHeader(IDEMPOTENCY_REPLAYED_HEADER, "true");
    try {
      response.status(200).json(await showBatch(deps, batch));
    } finally {
      // The caller need not wait for what the workers do first.
      if (!replayed) deps.onBatchCreated(batch);
    }
  };
}
