import type { Request } from "express";
import type { BatchObject, ListEnvelope } from "../../contract/batch-api.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { PATHS } from "../../contract/routes.ts";
import { UNFINISHED_BATCH_STATUSES } from "../../contract/statuses.ts";
import { deleteRecord as deleteRecordOf, dropOutputs } from "../../domain/batches/delete.ts";
import type { BatchPage } from "../../domain/ports/stores.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { ApiDeps } from "../deps.ts";
import {
  authenticate,
  bearerErrors,
  callerOf,
  requireBatchGroup,
  type ScopedCaller,
} from "../http/authenticate.ts";
import { invalidQuery, pagingBy, readQuery } from "../http/parameters.ts";
import type { Answer, Operation, Surface } from "../operation.ts";
import { findBatch, showBatch } from "./batch-view.ts";
import { createOperations } from "./create.ts";
import { imageOperations, listItems, zipOperations } from "./images.ts";

const paging = pagingBy("b", ["createdAtMs", "seq"]);

/** How many of the newest batches the live view begins with. */
const NEWEST_OF_ALL_KEYS = 500;

/** Returns all open batches and the newest of the others, newest first. */
async function listOfAllKeys(deps: ApiDeps, caller: ScopedCaller): Promise<ListEnvelope<BatchObject>> {
  const { batches } = deps.stores.read;
  const open = await batches.withStatus(UNFINISHED_BATCH_STATUSES);
  const newest = await batches.latest(NEWEST_OF_ALL_KEYS);
  const byId = new Map([...newest, ...open].map((batch) => [batch.id, batch]));
  const data = await Promise.all([...byId.values()].map((batch) => showBatch(deps, caller, batch)));
  return { object: "list", data, has_more: false, next_cursor: null };
}

/** Returns batches as the API shows them, with their retries if `include` of the query asks for those. */
async function showBatches(
  deps: ApiDeps,
  caller: ScopedCaller,
  request: Request,
  batches: readonly BatchRecord[],
  queuedBehind: number | null = null,
): Promise<BatchObject[]> {
  const views = await Promise.all(batches.map((batch) => showBatch(deps, caller, batch, queuedBehind)));
  const [first] = batches;
  if (first === undefined || !includesRetries(request)) return views;
  const ids = batches.map(({ id }) => id);
  const retries = await deps.stores.read.batches.retriesOf(first.apiKeyId, ids, FIXED_LIMITS.batchPageMax);
  const shown = await Promise.all(retries.map((batch) => showBatch(deps, caller, batch)));
  return views.map((view) => ({
    ...view,
    retries: shown.filter(({ parent_batch_id }) => parent_batch_id === view.id),
  }));
}

const includesRetries = (request: Request) => readQuery(request, "IncludeRetries") === "retries";

function readFilter(request: Request): Partial<BatchPage> {
  const status = readQuery(request, "BatchStatus");
  const taskName = readQuery(request, "TaskName");
  const downloaded = readQuery(request, "Downloaded");
  const from = readQuery(request, "From");
  const to = readQuery(request, "To");
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

const batchAnswer = (description: string): Answer => ({ description, schema: "Batch" });

const OPERATIONS: readonly Operation[] = [
  ...createOperations,
  {
    id: "listBatches",
    method: "get",
    path: PATHS.batches,
    summary: "Batches of this key, newest first",
    parameters: [
      "BatchStatus",
      "TaskName",
      "Downloaded",
      "From",
      "To",
      "IncludeRetries",
      "BatchLimit",
      "Cursor",
    ],
    answers: { 200: { description: "A page of batches.", schema: "BatchList" } },
    errors: ["BATCH_IMAGE_INVALID_QUERY"],
    handler: (deps) => async (request, response) => {
      const caller = callerOf(response);
      if (caller.scope.keys === "all") return void response.json(await listOfAllKeys(deps, caller));
      const limit = readQuery(request, "BatchLimit");
      const hidesRetries = includesRetries(request);
      const filter = { ...readFilter(request), ...paging.start(request), hidesRetries };
      const found = await deps.stores.read.batches.page({
        apiKeyId: caller.key.id,
        ...filter,
        limit: limit + 1,
      });
      const page = paging.page(found, limit, (batch) => batch);
      response.json({ ...page, data: await showBatches(deps, caller, request, page.data) });
    },
  },
  {
    id: "getBatch",
    method: "get",
    path: PATHS.batch,
    summary: "One batch as it is now",
    parameters: ["BatchId", "IncludeRetries"],
    answers: { 200: batchAnswer("The batch.") },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_INVALID_QUERY"],
    handler: (deps) => async (request, response) => {
      const caller = callerOf(response);
      const batch = await findBatch(deps.stores, caller, request.params.id);
      const isQueued = batch.status === "queued";
      const behind = isQueued ? await deps.stores.read.batches.openBefore(batch, MOST_COUNTED) : null;
      const [view] = await showBatches(deps, caller, request, [batch], behind);
      if (caller.scope.keys === "own") return void response.json(view);
      const events = await deps.stores.read.batches.events(batch.id);
      response.json({ ...view, history: events.map(({ to, atMs }) => ({ status: to, at: atMs / 1000 })) });
    },
  },
  listItems,
  ...imageOperations,
  ...zipOperations,
  {
    id: "cancelBatch",
    method: "post",
    path: PATHS.cancel,
    summary: "Stop a batch; finished images stay and are billed",
    parameters: ["BatchId"],
    answers: {
      200: batchAnswer(
        "The batch, cancelled; unchanged when it had ended already. While requests of it are awaited that are paid, it has not ended, and its `waiting` says so.",
      ),
    },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_CANCEL_FAILED", "BATCH_IMAGE_QUEUE_FAILED"],
    handler: (deps) => async (request, response) => {
      const caller = callerOf(response);
      const { id } = await findBatch(deps.stores, caller, request.params.id);
      await deps.cancel(id);
      const batch = await findBatch(deps.stores, caller, id);
      response.json(await showBatch(deps, caller, batch));
    },
  },
  {
    id: "goOn",
    method: "post",
    path: PATHS.goOn,
    summary: "Let a stopped batch go on",
    parameters: ["BatchId", "Lease"],
    answers: { 200: batchAnswer("The batch, which goes on; unchanged when it had ended already.") },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_INVALID_QUERY", "BATCH_IMAGE_QUEUE_FAILED"],
    handler: (deps) => async (request, response) => {
      const caller = callerOf(response);
      const isLease = readQuery(request, "Lease") === "true";
      const { id } = await findBatch(deps.stores, caller, request.params.id);
      if (!(await deps.takesBatches())) throw new ImgbatchError("BATCH_IMAGE_QUEUE_FAILED");
      await deps.goOn(id, isLease);
      response.json(await showBatch(deps, caller, await findBatch(deps.stores, caller, id)));
    },
  },
  {
    id: "stopGoing",
    method: "delete",
    path: PATHS.goOn,
    summary: "Give back the lease with which a batch was let go on",
    parameters: ["BatchId"],
    answers: { 200: batchAnswer("The batch. A service that stays goes on with it.") },
    errors: ["BATCH_IMAGE_NOT_FOUND"],
    handler: (deps) => async (request, response) => {
      const caller = callerOf(response);
      const { id } = await findBatch(deps.stores, caller, request.params.id);
      await deps.stopGoing(id);
      response.json(await showBatch(deps, caller, await findBatch(deps.stores, caller, id)));
    },
  },
  {
    id: "endJobs",
    method: "post",
    path: PATHS.endJobs,
    summary: "End the jobs of a batch at its upstream; what they have made is fetched, and the rest fails",
    parameters: ["BatchId"],
    answers: {
      200: batchAnswer(
        "The batch, which ends once the upstream has ended its jobs; unchanged when it had ended already.",
      ),
    },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_NOT_IN_JOBS", "BATCH_IMAGE_QUEUE_FAILED"],
    handler: (deps) => async (request, response) => {
      const caller = callerOf(response);
      const found = await findBatch(deps.stores, caller, request.params.id);
      if (!deps.isInJobs(found)) throw new ImgbatchError("BATCH_IMAGE_NOT_IN_JOBS");
      if (!deps.workersRunning()) throw new ImgbatchError("BATCH_IMAGE_QUEUE_FAILED");
      await deps.endJobs(found.id);
      const batch = await findBatch(deps.stores, caller, found.id);
      response.json(await showBatch(deps, caller, batch));
    },
  },
  {
    id: "deleteOutputs",
    method: "delete",
    path: PATHS.outputs,
    summary: "Delete the image files of an ended batch; the record stays",
    parameters: ["BatchId"],
    answers: { 200: batchAnswer("The batch without its outputs.") },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_OUTPUT_DELETE_NOT_READY", "BATCH_IMAGE_QUEUE_FAILED"],
    handler: (deps) => async (request, response) => {
      const caller = callerOf(response);
      const { id } = await findBatch(deps.stores, caller, request.params.id);
      await dropOutputs(deps, id, deps.clock.nowMs());
      const batch = await findBatch(deps.stores, caller, id);
      response.json(await showBatch(deps, caller, batch));
    },
  },
  {
    id: "deleteBatch",
    method: "delete",
    path: PATHS.batch,
    summary: "Hide the record of an ended batch; its files stay until they expire",
    parameters: ["BatchId"],
    answers: { 204: { description: "The record is hidden." } },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_RECORD_DELETE_NOT_READY", "BATCH_IMAGE_QUEUE_FAILED"],
    handler: (deps) => async (request, response) => {
      const batch = await findBatch(deps.stores, callerOf(response), request.params.id);
      await deleteRecordOf(deps, batch.id, deps.clock.nowMs());
      response.status(204).end();
    },
  },
];

/** The batch API. */
export const batchApi: Surface = {
  tag: "batches",
  vendor: null,
  prefix: PATHS.batches,
  operations: OPERATIONS,
  guards: [requireBatchGroup],
  credential: {
    schemes: ["apiKey"],
    authenticate,
    errors: [...bearerErrors, "BATCH_IMAGE_GROUP_DISABLED"],
  },
};
