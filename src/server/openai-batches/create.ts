import type { Request, Response } from "express";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { CreateOpenaiBatch } from "../../contract/openai-batches/batches.ts";
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
import { withJsonBody } from "../request-body/with-json-body.ts";
import { batchView } from "./batch-view.ts";
import { checkBatch, isRepeated } from "./check-batch.ts";
import { firstModelName } from "./first-model.ts";
import { Turns } from "./turns.ts";

/** The library asks three times at most, and waits ten minutes for each answer. */
const REPEATED_WITHIN_MS = 35 * 60_000;
/** The newest batches of a key that are looked through. */
const LOOKED_THROUGH = 100;

/**
 * `POST /v1/batches`: accepts a batch. Its lines are checked and paid for later, by a worker. OpenAI's library sends no
 * idempotency key: when it says that it repeats a request, and an equal one has made a batch, the response is that batch.
 */
export function createOpenaiBatch(deps: ApiDeps) {
  const turns = new Turns();
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "REALTIME_INVALID_ARGUMENT");
    const images = { path: [], base64: "lenient", maxBytes: 0, blobs: deps.blobs } as const;
    const options = { ...deps, maxBytes: FIXED_LIMITS.inlineBodyBytes, images };
    const batch = await withJsonBody(request, response, options, ({ value }) => {
      const asked = checkBatch(value);
      const requestHash = sha256Hex(JSON.stringify(asked));
      // The first request may be at work while the library repeats it.
      return turns.take(`${caller.key.id} ${requestHash}`, async () => {
        const earlier = isRepeated(request) ? await earlierBatch(deps, caller.key.id, requestHash) : null;
        if (earlier !== null) return earlier;
        const created = await create(deps, caller, asked, requestHash);
        deps.onBatchCreated(created.id);
        return created;
      });
    });
    response.json(batchView(batch, batch.status));
  };
}

async function earlierBatch(
  deps: ApiDeps,
  apiKeyId: string,
  requestHash: string,
): Promise<BatchRecord | null> {
  const fromMs = deps.clock.nowMs() - REPEATED_WITHIN_MS;
  const filter = { apiKeyId, source: "openai", fromMs, limit: LOOKED_THROUGH } as const;
  const recent = await deps.stores.read.batches.page(filter);
  return recent.find(({ input }) => input?.openai?.requestHash === requestHash) ?? null;
}

async function create(
  deps: ApiDeps,
  caller: Caller,
  asked: CreateOpenaiBatch,
  requestHash: string,
): Promise<BatchRecord> {
  const { input_file_id: fileId, endpoint, metadata = null, output_expires_after: expiry } = asked;
  const file = await usableFile(deps, caller.key.id, fileId, "input_file_id");
  const modelName = await firstModelName(deps, file.blobKey);
  return createJob(deps, caller, {
    source: "openai",
    model: findModel(deps, caller, modelName),
    name: null,
    metadata,
    openai: { endpoint, modelName, requestHash, resultsKeptMs: expiry ? expiry.seconds * 1000 : null },
    input: { fileName: file.id, blobKey: file.blobKey },
  });
}

/** Without a name, and for names that have none, it is the first model that a provider serves now. */
function findModel(deps: ApiDeps, { group }: Caller, name: string | null): ModelEntry {
  const models = batchModelsOf(group, deps.models).filter((model) => pricedSizes(model).length > 0);
  const model = servedModelNamed(name, models, deps.offers, deps.modelNames);
  if (model === null) throw modelNotFound(name ?? "");
  return model;
}
