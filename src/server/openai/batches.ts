import type { Request, Response } from "express";
import type { z } from "zod";
import { ImgbatchError, isErrorCode } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import {
  type CreateOpenaiBatch,
  createOpenaiBatchSchema,
  type OpenaiBatch,
  type OpenaiBatchState,
  type OpenaiList,
  openaiCode,
} from "../../contract/openai-api.ts";
import { inWords } from "../../contract/text-rules.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import { hasItems } from "../../domain/batches/lifecycle.ts";
import { createJob } from "../../domain/lines/create-job.ts";
import { batchModelsOf, type ModelEntry } from "../../domain/models.ts";
import { pricedSizes } from "../../domain/realtime/models.ts";
import type { BatchError, BatchRecord } from "../../domain/records.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { hasUnstorableText } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf, consentingCaller } from "../http/authenticate.ts";
import { fieldError, schemaProblem } from "../http/errors.ts";
import { invalidQuery, queryInteger, queryText } from "../http/query.ts";
import { type JobProgress, ownJob, progressOf } from "../jobs/results.ts";
import { usableFile } from "../jobs/vendor-jobs.ts";
import { modelNotFound } from "../native-api/models.ts";
import { plainFormat, shapeOf } from "../request-body/body-shape.ts";
import { withJsonBody } from "../request-body/json-body.ts";
import {
  batchOfOpenaiId,
  firstModelName,
  type JobOrigin,
  openaiBatchId,
  originOf,
  resultIdOf,
} from "./batch-lines.ts";
import { servedModelNamed } from "./model-names.ts";

/** Checks the body of `POST /v1/batches`. Throws `REALTIME_INVALID_ARGUMENT`. */
function checkBatch(body: unknown): CreateOpenaiBatch {
  const parsed = createOpenaiBatchSchema.safeParse(body, { error: inWords });
  if (!parsed.success) throw schemaProblem(parsed.error as z.ZodError, "REALTIME_INVALID_ARGUMENT");
  if (
    hasUnstorableText(
      Object.entries(parsed.data.metadata ?? {})
        .flat()
        .join(""),
    )
  ) {
    const problem = "must not hold NUL or half of a surrogate pair";
    throw fieldError("REALTIME_INVALID_ARGUMENT", "metadata", problem);
  }
  return parsed.data;
}

/** Whether OpenAI's library sends a request again, after an answer that it did not get or did not like. */
function isRepeated(request: Request): boolean {
  return Number(request.get("x-stainless-retry-count") ?? 0) > 0;
}

const STATES: Record<JobProgress["status"], OpenaiBatchState> = {
  queued: "in_progress",
  running: "in_progress",
  processing_results: "finalizing",
  settling: "finalizing",
  completed: "completed",
  failed: "failed",
  cancelled: "cancelled",
  expired: "expired",
};

/** A batch as OpenAI's API shows it. */
function batchView(batch: BatchRecord, { status, error }: JobProgress): OpenaiBatch {
  const state = status === "queued" && !hasItems(batch) ? "validating" : STATES[status];
  const { createdAtMs, inputReadAtMs, endedAtMs, input, itemCount, successCount, failCount } = batch;
  const endedAs = (wanted: OpenaiBatchState) => (state === wanted ? secondsOf(endedAtMs) : null);
  return {
    id: openaiBatchId(batch.id),
    object: "batch",
    endpoint: originOf(batch)?.endpoint ?? "",
    model: batch.model,
    errors: state === "failed" ? errorsOf(error) : null,
    input_file_id: input?.fileName ?? "",
    completion_window: "24h",
    status: state,
    output_file_id: resultIdOf(batch, "output"),
    error_file_id: resultIdOf(batch, "errors"),
    created_at: Math.floor(createdAtMs / 1000),
    in_progress_at: secondsOf(inputReadAtMs),
    expires_at: null,
    finalizing_at: endedAs("completed"),
    completed_at: endedAs("completed"),
    failed_at: endedAs("failed"),
    expired_at: endedAs("expired"),
    cancelling_at: endedAs("cancelled"),
    cancelled_at: endedAs("cancelled"),
    request_counts: { total: itemCount, completed: successCount, failed: failCount },
    metadata: batch.metadata,
  };
}

function errorsOf(error: BatchError | null): OpenaiBatch["errors"] {
  const given = error?.code ?? "";
  const code = isErrorCode(given) ? openaiCode(given) : given;
  const message = error?.message ?? "The batch failed.";
  return { object: "list", data: [{ code, message, param: null, line: null }] };
}

const secondsOf = (ms: number | null) => (ms === null ? null : Math.floor(ms / 1000));

/**
 * Returns how many entries a page has. A `limit` above the largest page means the largest page, and `has_more` shows
 * the rest. Throws `BATCH_IMAGE_INVALID_QUERY`.
 */
export function pageLimit(request: Request, usual: number, largest: number): number {
  return Math.min(queryInteger(request, "limit", { fallback: usual, min: 1, max: 10_000 }), largest);
}

/** A page of at most `limit` entries. One entry more in `found` means that another page follows. */
export function listPage<T extends { id: string }>(found: readonly T[], limit: number): OpenaiList<T> {
  const data = found.slice(0, limit);
  return {
    object: "list",
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: found.length > limit,
  };
}

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
  return batchView(batch, await progressOf(stores, batch));
}

async function batchOf(deps: ApiDeps, request: Request, response: Response): Promise<BatchRecord> {
  const batch = await ownBatch(deps, callerOf(response).key.id, String(request.params.id));
  if (batch !== null) return batch;
  throw new ImgbatchError("JOB_NOT_FOUND");
}

function ownBatch({ stores }: ApiDeps, keyId: string, id: string): Promise<BatchRecord | null> {
  return ownJob(stores, keyId, "openai", batchOfOpenaiId(id));
}

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
    response.json(await viewOf(deps, batch));
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
  const source = "openai";
  const equal = { apiKeyId: caller.key.id, source, requestHash, fromMs } as const;
  const before = await deps.stores.read.batches.ofEqualRequest(equal);
  if (isRepeat && before !== null) return before;
  const { input_file_id: fileId, endpoint, metadata = null, output_expires_after: expiry } = asked;
  const file = await usableFile(deps, caller.key.id, fileId, "input_file_id");
  const modelName = await firstModelName(deps, file.blobKey);
  const origin: JobOrigin = { endpoint, modelName, ...(isRepeat && { isRepeat }) };
  const created = await createJob(deps, caller, {
    source,
    model: findModel(deps, caller, modelName),
    name: null,
    metadata,
    facts: { requestHash, origin, ...(expiry && { resultsKeptMs: expiry.seconds * 1000 }) },
    findMade: async (tx) => {
      const made = await tx.batches.ofEqualRequest(equal);
      if (isRepeat || made === null) return made;
      // Only a repeat can have overtaken a first request. Another first request wants a batch of its own.
      return made.id !== before?.id && originOf(made)?.isRepeat ? made : null;
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
