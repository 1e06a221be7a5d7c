import type { Request, Response } from "express";
import { createBatchSchema } from "../../contract/batch-api.ts";
import type { ServiceErrorCode } from "../../contract/errors.ts";
import { IDEMPOTENCY_REPLAYED_HEADER } from "../../contract/routes.ts";
import { createBatch, isKnownRequest } from "../../domain/batches/create-batch.ts";
import { consentingCaller } from "../consent.ts";
import type { ApiDeps } from "../deps.ts";
import { idempotencyKeyOf } from "../idempotency-key.ts";
import { shapeOf } from "../request-body/body-shape.ts";
import { withJsonBody } from "../request-body/with-json-body.ts";
import { showBatch } from "./batch-view.ts";
import { checkRequest } from "./request/check-request.ts";

const SHAPE = shapeOf(createBatchSchema, {
  "items[].prompt": "prompt",
  "items[].reference_images[].data": "image",
});

function codeOf(param: string): ServiceErrorCode {
  if (param === "model") return "BATCH_IMAGE_INVALID_MODEL";
  return param.includes(".reference_images[")
    ? "BATCH_IMAGE_INVALID_REFERENCE_IMAGE"
    : "BATCH_IMAGE_INVALID_ITEMS";
}

/** `POST /v1/images/batches`: accepts a batch, or returns the one that the same idempotency key made. */
export function create(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "BATCH_IMAGE_INVALID_ITEMS");
    const { limits, bodyBudgets, blobs } = deps;
    const images = { base64: "strict", maxBytes: limits.referenceImageBytes, blobs } as const;
    const format = {
      shape: SHAPE,
      prompts: limits.itemsPerBatch,
      images: limits.referenceImagesPerBatch,
      promptChars: limits.promptChars,
      code: codeOf,
    };
    const options = { bodyBudgets, maxBytes: limits.createBodyBytes, format, images };
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
