import type { Request, Response } from "express";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { type CreateOpenaiBatch, createOpenaiBatchSchema } from "../../contract/openai-api.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import { createJob } from "../../domain/lines/create-job.ts";
import { batchModelsOf, type ModelEntry } from "../../domain/models.ts";
import { servedModelNamed } from "../../domain/realtime/model-names.ts";
import { pricedSizes } from "../../domain/realtime/models.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { consentingCaller } from "../consent.ts";
import type { ApiDeps } from "../deps.ts";
import { usableFile } from "../jobs/usable-file.ts";
import { modelNotFound } from "../native-api/models.ts";
import { plainFormat, shapeOf } from "../request-body/body-shape.ts";
import { withJsonBody } from "../request-body/with-json-body.ts";
import { batchView } from "./batch-view.ts";
import { checkBatch, isRepeated } from "./check-batch.ts";
import { firstModelName } from "./first-model.ts";

const FORMAT = plainFormat(shapeOf(createOpenaiBatchSchema), "REALTIME_INVALID_ARGUMENT");
/** The library asks three times at most, and waits ten minutes for each answer. */
const REPEATED_WITHIN_MS = 35 * 60_000;

/**
 * `POST /v1/batches`: accepts a batch. Its lines are checked and paid for later, by a worker. OpenAI's library sends no
 * idempotency key: when it says that it repeats a request, and an equal one has made a batch, the response is that batch,
 * whichever of the two comes to its end first.
 */
export function createOpenaiBatch(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "REALTIME_INVALID_ARGUMENT");
    const options = { ...deps, maxBytes: FIXED_LIMITS.inlineBodyBytes, format: FORMAT, images: null };
    const batch = await withJsonBody(request, response, options, ({ value }) => {
      const asked = checkBatch(value);
      return create(deps, caller, asked, isRepeated(request));
    });
    response.json(batchView(batch, batch.status));
  };
}

async function create(
  deps: ApiDeps,
  caller: Caller,
  asked: CreateOpenaiBatch,
  isRepeat: boolean,
): Promise<BatchRecord> {
  const requestHash = sha256Hex(JSON.stringify(asked));
  const fromMs = deps.clock.nowMs() - REPEATED_WITHIN_MS;
  const equal = { apiKeyId: caller.key.id, requestHash, fromMs };
  const before = await deps.stores.read.batches.ofOpenaiRequest(equal);
  if (isRepeat && before !== null) return before;
  const { input_file_id: fileId, endpoint, metadata = null, output_expires_after: expiry } = asked;
  const file = await usableFile(deps, caller.key.id, fileId, "input_file_id");
  const modelName = await firstModelName(deps, file.blobKey);
  const resultsKeptMs = expiry ? expiry.seconds * 1000 : null;
  const created = await createJob(deps, caller, {
    source: "openai",
    model: findModel(deps, caller, modelName),
    name: null,
    metadata,
    openai: { endpoint, modelName, requestHash, resultsKeptMs, ...(isRepeat && { isRepeat }) },
    findMade: async (tx) => {
      const made = await tx.batches.ofOpenaiRequest(equal);
      if (isRepeat || made === null) return made;
      // Only a repeat can have overtaken a first request. Another first request wants a batch of its own.
      return made.id !== before?.id && made.input?.openai?.isRepeat ? made : null;
    },
    input: { fileName: file.id, blobKey: file.blobKey },
  });
  deps.onBatchCreated(created);
  return created;
}

/** Without a name, and for names that have none, it is the first model that a provider serves now. */
function findModel(deps: ApiDeps, { group }: Caller, name: string | null): ModelEntry {
  const models = batchModelsOf(group, deps.models).filter((model) => pricedSizes(model).length > 0);
  const model = servedModelNamed(name, models, deps.offers, deps.modelNames);
  if (model === null) throw modelNotFound(name ?? "");
  return model;
}
