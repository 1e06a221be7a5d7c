import type { Request } from "express";
import { isErrorCode } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { type OpenaiBody, openaiCode, openaiSchemas } from "../../contract/openai-api.ts";
import { PATHS } from "../../contract/routes.ts";
import { isTerminal } from "../../contract/statuses.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import { dropOutputs } from "../../domain/batches/delete.ts";
import { hasItems } from "../../domain/batches/lifecycle.ts";
import { batchModelsOf, type ModelEntry, pricedSizes } from "../../domain/models.ts";
import type { Repositories, Transaction } from "../../domain/ports/stores.ts";
import type { BatchError, BatchRecord } from "../../domain/records.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { ApiDeps } from "../deps.ts";
import { parseArgument, requireStorable } from "../http/errors.ts";
import { invalidQuery, queryInteger, queryText } from "../http/query.ts";
import { hasResults, type JobProgress } from "../jobs/results.ts";
import {
  JOB_ERRORS,
  numberOf,
  type ResultFile,
  resultIdOf,
  usableFile,
  vendorJobs,
} from "../jobs/vendor-jobs.ts";
import { modelNotFound } from "../native-api/models.ts";
import type { Operation } from "../operation.ts";
import { plainFormat, shapeOf } from "../request-body/json-value.ts";
import { firstModelName, type JobOrigin, originOf, resultLine } from "./batch-lines.ts";
import { servedModelNamed } from "./model-names.ts";

/** Checks the body of `POST /v1/batches`. Throws `REALTIME_INVALID_ARGUMENT`. */
function checkBatch(body: unknown): OpenaiBody<"CreateOpenaiBatch"> {
  const asked = parseArgument(openaiSchemas.CreateOpenaiBatch, body);
  const texts = Object.entries(asked.metadata ?? {}).flat();
  requireStorable("metadata", texts.join(""));
  return asked;
}

/** Whether OpenAI's library sends a request again, after an answer that it did not get or did not like. */
function isRepeated(request: Request): boolean {
  return Number(request.get("x-stainless-retry-count") ?? 0) > 0;
}

const STATES: Record<JobProgress["status"], OpenaiBody<"OpenaiBatch">["status"]> = {
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
function batchView(batch: BatchRecord, { status, error }: JobProgress): OpenaiBody<"OpenaiBatch"> {
  const state = status === "queued" && !hasItems(batch) ? "validating" : STATES[status];
  const { createdAtMs, inputReadAtMs, endedAtMs, input, itemCount, successCount, failCount } = batch;
  const endedAs = (wanted: OpenaiBody<"OpenaiBatch">["status"]) =>
    state === wanted ? secondsOf(endedAtMs) : null;
  return {
    id: `batch_${numberOf(batch)}`,
    object: "batch",
    endpoint: originOf(batch)?.endpoint ?? "",
    model: batch.model,
    errors: state === "failed" ? errorsOf(error) : null,
    input_file_id: input?.fileName ?? "",
    completion_window: "24h",
    status: state,
    output_file_id: resultIdOf(outputs, batch),
    error_file_id: resultIdOf(errors, batch),
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

function errorsOf(error: BatchError | null): OpenaiBody<"OpenaiBatch">["errors"] {
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

/** The body of a list: a page of views, and whether more were found. */
export function listBody(views: readonly object[], found: readonly unknown[]) {
  const data = views as readonly { id: string }[];
  return {
    object: "list",
    data: [...data],
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: found.length > data.length,
  };
}

const outputs: ResultFile = {
  prefix: "output-",
  exists: (batch) => hasResults(batch) && batch.successCount > 0,
  line: (batch, result) => (result.item.error === null ? resultLine(batch, result) : null),
};

/** Errors need no image: they outlast the images. */
const errors: ResultFile = {
  prefix: "errors-",
  exists: (batch) => isTerminal(batch.status) && batch.failCount > 0 && !originOf(batch)?.areErrorsDeleted,
  line: (batch, result) => (result.item.error === null ? null : resultLine(batch, result)),
};

const FORMAT = plainFormat(shapeOf(openaiSchemas.CreateOpenaiBatch), "REALTIME_INVALID_ARGUMENT");
const { jobPageDefault, jobPageMax } = FIXED_LIMITS;

const jobs = vendorJobs({
  source: "openai",
  prefix: "batch_",
  view: batchView,
  showsCancelled: true,
  readPage: async (deps, request, find) => {
    const limit = pageLimit(request, jobPageDefault, jobPageMax);
    const id = queryText(request, "after");
    const last = id === undefined ? undefined : await find(id);
    if (last === null) throw invalidQuery("after", "must be the id of a batch of this list");
    const after = last && (await deps.stores.read.batches.placeOf(last.id));
    return { limit, filter: { ...(after && { after }) }, body: listBody };
  },
  results: [outputs, errors],
  readerOf: (deps, request) => ({
    format: FORMAT,
    images: null,
    read: (caller, { value }) => readBatch(deps, caller, checkBatch(value), isRepeated(request)),
  }),
});

export const { resultFile } = jobs;

/** Deletes the images, or the errors, of a batch. Returns whether the id of a file stands for some. */
export async function removeResult(deps: ApiDeps, keyId: string, fileId: string): Promise<boolean> {
  const found = await jobs.findResult(deps, keyId, fileId);
  if (found === null) return false;
  const { file, batch } = found;
  const { id, input } = batch;
  if (file === outputs) await dropOutputs(deps, id, deps.clock.nowMs());
  else if (input !== null) {
    const origin = { ...input.origin, areErrorsDeleted: true };
    await deps.stores.write((tx) => tx.batches.update(id, { input: { ...input, origin } }));
  }
  return true;
}

/** The library asks three times at most, and waits ten minutes for each answer. */
const REPEATED_WITHIN_MS = 35 * 60_000;

/** What the row of a request says of it, in the place of a hash: the key is one. */
const [FIRST, REPEAT] = ["first", "repeat"];

/**
 * Reads a request for a batch. OpenAI's library sends no idempotency key: when it says that it repeats a request, and an
 * equal one has made a batch, the response is that batch, whichever of the two comes to its end first.
 */
async function readBatch(
  deps: ApiDeps,
  caller: Caller,
  asked: OpenaiBody<"CreateOpenaiBatch">,
  isRepeat: boolean,
) {
  const { read } = deps.stores;
  const { id: apiKeyId } = caller.key;
  const key = `${PATHS.openaiBatches} ${sha256Hex(JSON.stringify(asked))}`;
  const fromMs = deps.clock.nowMs() - REPEATED_WITHIN_MS;
  type FindBatch = (id: string) => Promise<BatchRecord | null>;
  const findEqual = async ({ idempotency }: Pick<Repositories, "idempotency">, find: FindBatch) => {
    const row = await idempotency.find(apiKeyId, key);
    const batch = row !== null && row.createdAtMs >= fromMs ? await find(row.batchId) : null;
    return row && batch?.recordDeletedAtMs === null ? { batch, kind: row.requestHash } : null;
  };
  const before = await findEqual(read, read.batches.byId);
  if (isRepeat && before !== null) return { repeated: before.batch };
  const { input_file_id: fileId, endpoint, metadata = null, output_expires_after: expiry } = asked;
  const file = await usableFile(deps, apiKeyId, fileId, "input_file_id");
  const modelName = await firstModelName(deps, file.blobKey);
  const origin: JobOrigin = { endpoint, modelName };
  return {
    model: findModel(deps, caller, modelName),
    name: null,
    metadata,
    facts: { origin, ...(expiry && { resultsKeptMs: expiry.seconds * 1000 }) },
    findMade: async (tx: Transaction) => {
      const made = await findEqual(tx, tx.batches.locked);
      // Only a repeat can have overtaken a first request. Another first request wants a batch of its own.
      const isOvertaken = made?.kind === REPEAT && made.batch.id !== before?.batch.id;
      return made && (isRepeat || isOvertaken) ? made.batch : null;
    },
    onMade: (tx: Transaction, { id: batchId, createdAtMs }: BatchRecord) =>
      tx.idempotency.replace({ apiKeyId, key, requestHash: isRepeat ? REPEAT : FIRST, batchId, createdAtMs }),
    input: { fileName: file.id, blobKey: file.blobKey },
  };
}

/** Without a name, and for names that have none, it is the first model that a provider serves now. */
function findModel(deps: ApiDeps, { group }: Caller, name: string | null): ModelEntry {
  const models = batchModelsOf(group, deps.models).filter((model) => pricedSizes(model).length > 0);
  const model = servedModelNamed(name, models, deps.offers, deps.modelNames);
  if (model === null) throw modelNotFound(name ?? "");
  return model;
}

const oneBatch = {
  parameters: ["OpenaiBatchId"],
  answers: { 200: { description: "The batch.", schema: "OpenaiBatch" } },
};

/** The operations on batches. */
export const batchOperations: readonly Operation[] = [
  {
    ...jobs.create,
    id: "createOpenaiBatch",
    path: PATHS.openaiBatches,
    summary: "Make many images as a batch, from a file of requests, for OpenAI clients",
    parameters: ["RetryCount", "MaxCost"],
    body: "CreateOpenaiBatch",
    answers: {
      200: { description: "The batch. Its lines are read and paid for later.", schema: "OpenaiBatch" },
    },
  },
  {
    ...jobs.list,
    id: "listOpenaiBatches",
    path: PATHS.openaiBatches,
    summary: "The batches that this key made with this API, newest first",
    parameters: ["OpenaiLimit", "OpenaiAfter"],
    answers: { 200: { description: "A page of batches.", schema: "OpenaiBatchList" } },
    errors: [...JOB_ERRORS, "BATCH_IMAGE_INVALID_QUERY"],
  },
  {
    ...jobs.get,
    ...oneBatch,
    id: "getOpenaiBatch",
    path: PATHS.openaiBatch,
    summary: "A batch as it is now",
  },
  {
    ...jobs.cancel,
    ...oneBatch,
    id: "cancelOpenaiBatch",
    path: PATHS.openaiBatchCancel,
    summary: "Stop a batch. What was made stays, and is paid for",
  },
];
