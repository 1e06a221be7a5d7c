import type { Request, Response } from "express";
import type { BatchObject, ListEnvelope } from "../../contract/batch-api.ts";
import type { ServiceErrorCode } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { PATHS } from "../../contract/routes.ts";
import { BATCH_STATUSES, isTerminal } from "../../contract/statuses.ts";
import { OPERATOR } from "../../domain/accounts.ts";
import { deleteRecord as deleteRecordOf, dropOutputs } from "../../domain/batches/delete.ts";
import type { BatchPage } from "../../domain/ports/batches.ts";
import type { ApiDeps } from "../deps.ts";
import {
  authenticate,
  bearerErrors,
  callerOf,
  requireBatchFeature,
  requireBatchGroup,
} from "../http/authenticate.ts";
import { conditions, downloadAnswers, headAnswers, ranges } from "../http/downloads.ts";
import { invalidQuery, pagingBy, queryChoice, queryInteger, queryText, readInstant } from "../http/query.ts";
import type { Answer, Operation, Surface } from "../operation.ts";
import { findBatch, showBatch } from "./batch-view.ts";
import { create, models, retry } from "./create.ts";
import { imageOperations } from "./images.ts";
import { items } from "./items.ts";
import { download, makeTicket } from "./zip.ts";

const paging = pagingBy("b", ["createdAtMs", "seq"]);

/** `GET /v1/images/batches`: the batches of the key, newest first, a page at a time. */
function list(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { key } = callerOf(response);
    if (key === OPERATOR) return void response.json(await listOfAllKeys(deps));
    const { batchPageDefault, batchPageMax } = FIXED_LIMITS;
    const limit = queryInteger(request, "limit", { fallback: batchPageDefault, min: 1, max: batchPageMax });
    const filter = { ...readFilter(request), ...paging.start(request) };
    const found = await deps.stores.read.batches.page({ apiKeyId: key.id, ...filter, limit: limit + 1 });
    const page = paging.page(found, limit, (batch) => batch);
    response.json({ ...page, data: await Promise.all(page.data.map((batch) => showBatch(deps, batch))) });
  };
}

/** How many of the newest batches the live view begins with. */
const NEWEST_OF_ALL_KEYS = 500;

/** Returns all open batches and the newest of the others, newest first. */
async function listOfAllKeys(deps: ApiDeps): Promise<ListEnvelope<BatchObject>> {
  const { batches } = deps.stores.read;
  const open = await batches.withStatus(BATCH_STATUSES.filter((status) => !isTerminal(status)));
  const newest = await batches.latest(NEWEST_OF_ALL_KEYS);
  const byId = new Map([...newest, ...open].map((batch) => [batch.id, batch]));
  const data = await Promise.all([...byId.values()].map((batch) => showBatch(deps, batch)));
  return { object: "list", data, has_more: false, next_cursor: null };
}

function readFilter(request: Request): Partial<BatchPage> {
  const status = queryChoice(request, "status", ["all", ...BATCH_STATUSES]);
  const taskName = queryText(request, "task_name");
  const downloaded = queryChoice(request, "downloaded", ["true", "false"]);
  const from = readInstant(request, "from");
  const to = readInstant(request, "to");
  if (from && to && from.firstSecond > to.lastSecond) throw invalidQuery("from", "must not be after `to`");
  return {
    ...(status === undefined || status === "all" ? {} : { status }),
    ...(taskName === undefined ? {} : { taskName }),
    ...(downloaded === undefined ? {} : { isDownloaded: downloaded === "true" }),
    ...(from ? { fromMs: from.firstSecond * 1000 } : {}),
    ...(to ? { beforeMs: (to.lastSecond + 1) * 1000 } : {}),
  };
}

/** A larger number of batches that come first helps nobody, and costs time to count. */
const MOST_COUNTED = 1000;

/** `GET /v1/images/batches/{id}`: the batch as it is now. */
function get(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const batch = await findBatch(deps.stores, callerOf(response), request.params.id);
    const isQueued = batch.status === "queued";
    const behind = isQueued ? await deps.stores.read.batches.openBefore(batch, MOST_COUNTED) : null;
    const view = await showBatch(deps, batch, behind);
    if (callerOf(response).key !== OPERATOR) return void response.json(view);
    const events = await deps.stores.read.batches.events(batch.id);
    response.json({ ...view, history: events.map(({ to, atMs }) => ({ status: to, at: atMs / 1000 })) });
  };
}

/** `POST …/{id}/cancel`: stops the batch; an ended one stays as it is. */
function cancel(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = callerOf(response);
    const { id } = await findBatch(deps.stores, caller, request.params.id);
    await deps.cancel(id);
    const batch = await findBatch(deps.stores, caller, id);
    response.json(await showBatch(deps, batch));
  };
}

/** `DELETE …/{id}/outputs`: deletes the image files and keeps the record. */
function deleteOutputs(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = callerOf(response);
    const { id } = await findBatch(deps.stores, caller, request.params.id);
    await dropOutputs(deps, id, deps.clock.nowMs());
    const batch = await findBatch(deps.stores, caller, id);
    response.json(await showBatch(deps, batch));
  };
}

/** `DELETE …/{id}`: hides the record of an ended batch. */
function deleteRecord(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const batch = await findBatch(deps.stores, callerOf(response), request.params.id);
    await deleteRecordOf(deps, batch.id, deps.clock.nowMs());
    response.status(204).end();
  };
}

const usesBatches = [requireBatchGroup];
/** Switching batches off stops new ones; finished results stay reachable. */
const makesBatches = [requireBatchFeature, requireBatchGroup];

const batchAnswer = (description: string): Answer => ({ description, schema: "Batch" });

const zipErrors: readonly ServiceErrorCode[] = [
  "BATCH_IMAGE_NOT_FOUND",
  "BATCH_IMAGE_INVALID_QUERY",
  "BATCH_IMAGE_OUTPUT_DELETED",
  "BATCH_IMAGE_NOT_READY",
  "BATCH_IMAGE_ZIP_TOO_MANY_ITEMS",
  "BATCH_IMAGE_DOWNLOAD_TOO_LARGE",
  "BATCH_IMAGE_RESULT_MISSING",
];

/** The errors of everything that makes a batch. */
const makeErrors: readonly ServiceErrorCode[] = [
  "BATCH_IMAGE_DISABLED",
  "BATCH_IMAGE_INVALID_MODEL",
  "BATCH_IMAGE_INVALID_ITEMS",
  "BATCH_IMAGE_INVALID_REFERENCE_IMAGE",
  "BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES",
  "BATCH_IMAGE_IDEMPOTENCY_CONFLICT",
  "BATCH_IMAGE_SETTLEMENT_PRICING_MISSING",
  "BATCH_IMAGE_NO_ACCOUNT_AVAILABLE",
  "BATCH_IMAGE_QUEUE_FAILED",
  "BATCH_IMAGE_INSUFFICIENT_BALANCE",
];

/** The download of a ZIP, which also a link with a ticket offers. */
export const batchDownload: Operation = {
  id: "downloadBatch",
  method: "get",
  path: PATHS.download,
  summary: "Images, manifest and errors of an ended batch as one ZIP",
  parameters: ["BatchId", "ZipStatus", "MaxItems", ...ranges],
  answers: downloadAnswers("The ZIP; the same batch always gives the same bytes.", ["application/zip"]),
  errors: [...zipErrors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
  guards: usesBatches,
  handler: download,
};

/** The errors of reading a JSON body. */
const bodyErrors: readonly ServiceErrorCode[] = [
  "UNSUPPORTED_MEDIA_TYPE",
  "REQUEST_TIMEOUT",
  "REQUEST_TOO_LARGE",
  "INVALID_JSON",
];

const OPERATIONS: readonly Operation[] = [
  {
    id: "listBatchModels",
    method: "get",
    path: PATHS.batchModels,
    summary: "Models that this key can use in batches, with prices",
    answers: { 200: { description: "The models.", schema: "BatchModelList" } },
    errors: ["BATCH_IMAGE_DISABLED"],
    guards: makesBatches,
    handler: models,
  },
  {
    id: "createBatch",
    method: "post",
    path: PATHS.batches,
    summary: "Create a batch",
    parameters: ["IdempotencyKey", "MaxCost"],
    body: "CreateBatch",
    answers: {
      200: {
        description: "The batch was accepted, or is the one that the same `Idempotency-Key` made before.",
        schema: "Batch",
        headers: ["IdempotencyReplayed"],
      },
    },
    errors: [
      ...bodyErrors,
      "BATCH_IMAGE_DUPLICATE_CUSTOM_ID",
      "BATCH_IMAGE_PROMPT_TOO_LONG",
      "BATCH_IMAGE_REFERENCE_IMAGES_TOO_LARGE",
      "BATCH_IMAGE_TOO_MANY_OUTPUT_IMAGES",
      "BATCH_IMAGE_NOT_FOUND",
      ...makeErrors,
    ],
    guards: makesBatches,
    handler: create,
  },
  {
    id: "listBatches",
    method: "get",
    path: PATHS.batches,
    summary: "Batches of this key, newest first",
    parameters: ["BatchStatus", "TaskName", "Downloaded", "From", "To", "BatchLimit", "Cursor"],
    answers: { 200: { description: "A page of batches.", schema: "BatchList" } },
    errors: ["BATCH_IMAGE_INVALID_QUERY"],
    guards: usesBatches,
    handler: list,
  },
  {
    id: "getBatch",
    method: "get",
    path: PATHS.batch,
    summary: "One batch as it is now",
    parameters: ["BatchId"],
    answers: { 200: batchAnswer("The batch.") },
    errors: ["BATCH_IMAGE_NOT_FOUND"],
    guards: usesBatches,
    handler: get,
  },
  {
    id: "listItems",
    method: "get",
    path: PATHS.items,
    summary: "Items of a batch, in request order",
    parameters: ["BatchId", "ItemStatus", "Include", "ItemLimit", "Cursor"],
    answers: { 200: { description: "A page of items.", schema: "ItemList" } },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_INVALID_QUERY"],
    guards: usesBatches,
    handler: items,
  },
  ...imageOperations,
  batchDownload,
  {
    id: "headDownload",
    method: "head",
    path: PATHS.download,
    summary: "Size and ETag of the ZIP",
    parameters: ["BatchId", "ZipStatus", "MaxItems", ...conditions],
    answers: headAnswers("the ZIP"),
    errors: zipErrors,
    guards: usesBatches,
    handler: download,
  },
  {
    id: "makeTicket",
    method: "post",
    path: PATHS.ticket,
    summary: "A link that downloads the ZIP without a key, once, within a minute",
    parameters: ["BatchId"],
    answers: { 200: { description: "The link.", schema: "Ticket" } },
    errors: ["BATCH_IMAGE_NOT_FOUND"],
    guards: usesBatches,
    handler: makeTicket,
  },
  {
    id: "cancelBatch",
    method: "post",
    path: PATHS.cancel,
    summary: "Stop a batch; finished images stay and are billed",
    parameters: ["BatchId"],
    answers: { 200: batchAnswer("The batch, cancelled; unchanged when it had ended already.") },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_CANCEL_FAILED", "BATCH_IMAGE_QUEUE_FAILED"],
    guards: usesBatches,
    handler: cancel,
  },
  {
    id: "retryBatch",
    method: "post",
    path: PATHS.retry,
    summary: "Make the failed items of an ended batch again, as a new batch; refused prompts are left out",
    parameters: ["BatchId", "IdempotencyKey", "MaxCost"],
    body: "RetryBatch",
    isBodyOptional: true,
    answers: {
      200: {
        description: "The new batch; its parent is the first ancestor.",
        schema: "Batch",
        headers: ["IdempotencyReplayed"],
      },
    },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_NOT_READY", ...bodyErrors, ...makeErrors],
    guards: makesBatches,
    handler: retry,
  },
  {
    id: "deleteOutputs",
    method: "delete",
    path: PATHS.outputs,
    summary: "Delete the image files of an ended batch; the record stays",
    parameters: ["BatchId"],
    answers: { 200: batchAnswer("The batch without its outputs.") },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_OUTPUT_DELETE_NOT_READY", "BATCH_IMAGE_QUEUE_FAILED"],
    guards: usesBatches,
    handler: deleteOutputs,
  },
  {
    id: "deleteBatch",
    method: "delete",
    path: PATHS.batch,
    summary: "Hide the record of an ended batch; its files stay until they expire",
    parameters: ["BatchId"],
    answers: { 204: { description: "The record is hidden." } },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_RECORD_DELETE_NOT_READY", "BATCH_IMAGE_QUEUE_FAILED"],
    guards: usesBatches,
    handler: deleteRecord,
  },
];

/** The batch API. Each operation is a file beside this one. */
export const batchApi: Surface = {
  tag: "batches",
  prefix: PATHS.batches,
  operations: OPERATIONS,
  credential: {
    schemes: ["apiKey"],
    authenticate,
    errors: [...bearerErrors, "BATCH_IMAGE_GROUP_DISABLED"],
  },
};
