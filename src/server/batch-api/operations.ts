import type { ServiceErrorCode } from "../../contract/errors.ts";
import { PATHS } from "../../contract/routes.ts";
import { authenticate, requireBatchFeature, requireBatchGroup } from "../middleware/authenticate.ts";
import type { Answer, Operation, Surface } from "../operation.ts";
import { cancel } from "./cancel.ts";
import { content } from "./content.ts";
import { create } from "./create.ts";
import { deleteOutputs } from "./delete-outputs.ts";
import { deleteRecord } from "./delete-record.ts";
import { download } from "./download.ts";
import { get } from "./get.ts";
import { items } from "./items.ts";
import { list } from "./list.ts";
import { models } from "./models.ts";

const usesBatches = [requireBatchGroup];
/** Switching batches off stops new ones; finished results stay reachable. */
const makesBatches = [requireBatchFeature, requireBatchGroup];

const batchAnswer = (description: string): Answer => ({ description, schema: "Batch" });

const partOfDownload = ["ETag", "AcceptRanges", "CacheControl", "NoSniff"];
const unchanged: Answer = { description: "Unchanged since the ETag of `If-None-Match`.", headers: ["ETag"] };
const unsatisfiable: Answer = { description: "The range begins after the end.", headers: ["ContentRange"] };
const conditions = ["IfNoneMatch"];
const ranges = [...conditions, "Range", "IfRange"];

function downloadAnswers(what: string, bytes: readonly string[]): Record<number, Answer> {
  const headers = ["ContentLength", "ContentDisposition", ...partOfDownload];
  return {
    200: { description: what, bytes, headers },
    206: { description: "The range that was asked for.", bytes, headers: [...headers, "ContentRange"] },
    304: unchanged,
    416: unsatisfiable,
  };
}

function headAnswers(what: string): Record<number, Answer> {
  const headers = ["ContentLength", "ContentDisposition", ...partOfDownload];
  return { 200: { description: `The headers of ${what}.`, headers }, 304: unchanged };
}

const contentErrors: readonly ServiceErrorCode[] = [
  "BATCH_IMAGE_NOT_FOUND",
  "BATCH_IMAGE_ITEM_NOT_FOUND",
  "BATCH_IMAGE_OUTPUT_DELETED",
  "BATCH_IMAGE_NOT_READY",
  "BATCH_IMAGE_ITEM_FAILED",
  "BATCH_IMAGE_INVALID_QUERY",
  "BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE",
  "BATCH_IMAGE_RESULT_MISSING",
];
const zipErrors: readonly ServiceErrorCode[] = [
  "BATCH_IMAGE_NOT_FOUND",
  "BATCH_IMAGE_INVALID_QUERY",
  "BATCH_IMAGE_OUTPUT_DELETED",
  "BATCH_IMAGE_NOT_READY",
  "BATCH_IMAGE_ZIP_TOO_MANY_ITEMS",
  "BATCH_IMAGE_DOWNLOAD_TOO_LARGE",
  "BATCH_IMAGE_RESULT_MISSING",
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
      "BATCH_IMAGE_DISABLED",
      "UNSUPPORTED_MEDIA_TYPE",
      "REQUEST_TIMEOUT",
      "REQUEST_TOO_LARGE",
      "INVALID_JSON",
      "BATCH_IMAGE_INVALID_MODEL",
      "BATCH_IMAGE_INVALID_ITEMS",
      "BATCH_IMAGE_DUPLICATE_CUSTOM_ID",
      "BATCH_IMAGE_PROMPT_TOO_LONG",
      "BATCH_IMAGE_INVALID_REFERENCE_IMAGE",
      "BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES",
      "BATCH_IMAGE_REFERENCE_IMAGES_TOO_LARGE",
      "BATCH_IMAGE_TOO_MANY_OUTPUT_IMAGES",
      "BATCH_IMAGE_NOT_FOUND",
      "BATCH_IMAGE_IDEMPOTENCY_CONFLICT",
      "BATCH_IMAGE_SETTLEMENT_PRICING_MISSING",
      "BATCH_IMAGE_NO_ACCOUNT_AVAILABLE",
      "BATCH_IMAGE_QUEUE_FAILED",
      "BATCH_IMAGE_INSUFFICIENT_BALANCE",
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
    parameters: ["BatchId", "ItemStatus", "ItemLimit", "Cursor"],
    answers: { 200: { description: "A page of items.", schema: "ItemList" } },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_INVALID_QUERY"],
    guards: usesBatches,
    handler: items,
  },
  {
    id: "getItemContent",
    method: "get",
    path: PATHS.content,
    summary: "One image of an ended batch",
    parameters: ["BatchId", "CustomId", "ImageIndex", ...ranges],
    answers: downloadAnswers("The image.", ["image/png", "image/jpeg", "image/webp"]),
    errors: [...contentErrors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
    guards: usesBatches,
    handler: content,
  },
  {
    id: "headItemContent",
    method: "head",
    path: PATHS.content,
    summary: "Size, type and ETag of one image",
    parameters: ["BatchId", "CustomId", "ImageIndex", ...conditions],
    answers: headAnswers("the image"),
    errors: contentErrors,
    guards: usesBatches,
    handler: content,
  },
  {
    id: "downloadBatch",
    method: "get",
    path: PATHS.download,
    summary: "Images, manifest and errors of an ended batch as one ZIP",
    parameters: ["BatchId", "ZipStatus", "MaxItems", ...ranges],
    answers: downloadAnswers("The ZIP; the same batch always gives the same bytes.", ["application/zip"]),
    errors: [...zipErrors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
    guards: usesBatches,
    handler: download,
  },
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
    errors: [
      "API_KEY_REQUIRED",
      "INVALID_API_KEY",
      "API_KEY_DISABLED",
      "RATE_LIMITED",
      "BATCH_IMAGE_GROUP_DISABLED",
    ],
  },
};
