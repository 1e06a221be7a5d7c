import type { ServiceErrorCode } from "../../contract/errors.ts";
import { routes } from "../../contract/routes.ts";
import { NATIVE_OPERATIONS, WITH_NATIVE_KEY } from "./native-operations.ts";
import type { Answer, Operation } from "./operation.ts";

/** Where the description of the API and the numbers for monitoring are. */
export const OPENAPI_PATH = "/openapi.json";
export const METRICS_PATH = "/metrics";

/** Every operation can answer these. */
export const EVERYWHERE: readonly ServiceErrorCode[] = ["MISDIRECTED_REQUEST", "INTERNAL_ERROR"];

/** Every operation of the batch API can answer these. */
export const WITH_KEY: readonly ServiceErrorCode[] = [
  "API_KEY_REQUIRED",
  "INVALID_API_KEY",
  "API_KEY_DISABLED",
  "RATE_LIMITED",
  "BATCH_IMAGE_GROUP_DISABLED",
];

const BATCH = `${routes.batches}/{id}`;
const ITEMS = `${BATCH}/items`;
const CONTENT = `${ITEMS}/{custom_id}/content`;
const DOWNLOAD = `${BATCH}/download`;

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

/** The HTTP API, operation by operation. The description, the labels of metrics and their tests are made from it. */
export const OPERATIONS: readonly Operation[] = [
  {
    id: "listBatchModels",
    method: "get",
    path: routes.batchModels,
    summary: "Models that this key can use in batches, with prices",
    needsKey: true,
    answers: { 200: { description: "The models.", schema: "BatchModelList" } },
    errors: ["BATCH_IMAGE_DISABLED"],
  },
  {
    id: "createBatch",
    method: "post",
    path: routes.batches,
    summary: "Create a batch",
    needsKey: true,
    parameters: ["IdempotencyKey"],
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
  },
  {
    id: "listBatches",
    method: "get",
    path: routes.batches,
    summary: "Batches of this key, newest first",
    needsKey: true,
    parameters: ["BatchStatus", "TaskName", "Downloaded", "From", "To", "BatchLimit", "Cursor"],
    answers: { 200: { description: "A page of batches.", schema: "BatchList" } },
    errors: ["BATCH_IMAGE_INVALID_QUERY"],
  },
  {
    id: "getBatch",
    method: "get",
    path: BATCH,
    summary: "One batch as it is now",
    needsKey: true,
    parameters: ["BatchId"],
    answers: { 200: batchAnswer("The batch.") },
    errors: ["BATCH_IMAGE_NOT_FOUND"],
  },
  {
    id: "listItems",
    method: "get",
    path: ITEMS,
    summary: "Items of a batch, in request order",
    needsKey: true,
    parameters: ["BatchId", "ItemStatus", "ItemLimit", "Cursor"],
    answers: { 200: { description: "A page of items.", schema: "ItemList" } },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_INVALID_QUERY"],
  },
  {
    id: "getItemContent",
    method: "get",
    path: CONTENT,
    summary: "One image of an ended batch",
    needsKey: true,
    parameters: ["BatchId", "CustomId", "ImageIndex", ...ranges],
    answers: downloadAnswers("The image.", ["image/png", "image/jpeg", "image/webp"]),
    errors: [...contentErrors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
  },
  {
    id: "headItemContent",
    method: "head",
    path: CONTENT,
    summary: "Size, type and ETag of one image",
    needsKey: true,
    parameters: ["BatchId", "CustomId", "ImageIndex", ...conditions],
    answers: headAnswers("the image"),
    errors: contentErrors,
  },
  {
    id: "downloadBatch",
    method: "get",
    path: DOWNLOAD,
    summary: "Images, manifest and errors of an ended batch as one ZIP",
    needsKey: true,
    parameters: ["BatchId", "ZipStatus", "MaxItems", ...ranges],
    answers: downloadAnswers("The ZIP; the same batch always gives the same bytes.", ["application/zip"]),
    errors: [...zipErrors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
  },
  {
    id: "headDownload",
    method: "head",
    path: DOWNLOAD,
    summary: "Size and ETag of the ZIP",
    needsKey: true,
    parameters: ["BatchId", "ZipStatus", "MaxItems", ...conditions],
    answers: headAnswers("the ZIP"),
    errors: zipErrors,
  },
  {
    id: "cancelBatch",
    method: "post",
    path: `${BATCH}/cancel`,
    summary: "Stop a batch; finished images stay and are billed",
    needsKey: true,
    parameters: ["BatchId"],
    answers: { 200: batchAnswer("The batch, cancelled; unchanged when it had ended already.") },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_CANCEL_FAILED", "BATCH_IMAGE_QUEUE_FAILED"],
  },
  {
    id: "deleteOutputs",
    method: "delete",
    path: `${BATCH}/outputs`,
    summary: "Delete the image files of an ended batch; the record stays",
    needsKey: true,
    parameters: ["BatchId"],
    answers: { 200: batchAnswer("The batch without its outputs.") },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_OUTPUT_DELETE_NOT_READY", "BATCH_IMAGE_QUEUE_FAILED"],
  },
  {
    id: "deleteBatch",
    method: "delete",
    path: BATCH,
    summary: "Hide the record of an ended batch; its files stay until they expire",
    needsKey: true,
    parameters: ["BatchId"],
    answers: { 204: { description: "The record is hidden." } },
    errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_RECORD_DELETE_NOT_READY", "BATCH_IMAGE_QUEUE_FAILED"],
  },
  ...NATIVE_OPERATIONS,
  {
    id: "getHealth",
    method: "get",
    path: routes.health,
    summary: "The service is alive",
    needsKey: false,
    parameters: ["Challenge"],
    answers: { 200: { description: "It is.", schema: "Health" } },
    errors: ["BATCH_IMAGE_INVALID_QUERY"],
  },
  {
    id: "getReadiness",
    method: "get",
    path: routes.ready,
    summary: "The service is ready to work",
    needsKey: false,
    answers: {
      200: { description: "It is.", schema: "Readiness" },
      503: { description: "It is not; `problems` says why.", schema: "Readiness" },
    },
  },
  {
    id: "getMetrics",
    method: "get",
    path: METRICS_PATH,
    summary: "Numbers for monitoring, in the Prometheus text format",
    needsKey: false,
    answers: { 200: { description: "The numbers.", bytes: ["text/plain"] } },
  },
  {
    id: "getOpenApi",
    method: "get",
    path: OPENAPI_PATH,
    summary: "This description",
    needsKey: false,
    answers: { 200: { description: "An OpenAPI 3.1 document.", schema: "OpenApi" } },
  },
];

/** The codes that an operation can answer. */
export function errorsOf(operation: Operation): ServiceErrorCode[] {
  const withKey = operation.api === undefined ? WITH_KEY : WITH_NATIVE_KEY;
  return [...(operation.needsKey ? withKey : []), ...(operation.errors ?? []), ...EVERYWHERE];
}
