import type { ServiceErrorCode } from "../../contract/errors.ts";
import { PATHS } from "../../contract/routes.ts";
import { makeTicket } from "../console/tickets.ts";
import {
  authenticate,
  bearerErrors,
  requireBatchFeature,
  requireBatchGroup,
} from "../middleware/authenticate.ts";
import type { Answer, Operation, Surface } from "../operation.ts";
import { cancel } from "./cancel.ts";
import { create } from "./create.ts";
import { deleteOutputs } from "./delete-outputs.ts";
import { deleteRecord } from "./delete-record.ts";
import { download } from "./download.ts";
import { get } from "./get.ts";
import { conditions, downloadAnswers, headAnswers, ranges } from "./images/download-answers.ts";
import { imageOperations } from "./images/operations.ts";
import { items } from "./items.ts";
import { list } from "./list.ts";
import { models } from "./models.ts";
import { retry } from "./retry.ts";

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
