import type { ServiceErrorCode } from "../../contract/errors.ts";
import { PATHS } from "../../contract/routes.ts";
import { CREATION_ERRORS } from "../jobs/creation-errors.ts";
import { requireBatchFeature, requireBatchGroup } from "../middleware/authenticate.ts";
import { headerKey } from "../native-api/credentials.ts";
import { download } from "../native-api/files/operations.ts";
import { openaiErrorStyle } from "../openai-images/error-style.ts";
import type { Surface } from "../operation.ts";
import { cancelOpenaiBatch, getOpenaiBatch, listOpenaiBatches } from "./batches.ts";
import { createOpenaiBatch } from "./create.ts";
import { getOpenaiFile, listOpenaiFiles, removeOpenaiFile } from "./files.ts";
import { uploadFile } from "./upload.ts";

const one = { parameters: ["File"], errors: ["FILE_NOT_FOUND"] } as const;

/** Files of OpenAI's API. */
const files: Surface = {
  tag: "files",
  prefix: PATHS.openaiFiles,
  operations: [
    {
      id: "uploadOpenaiFile",
      method: "post",
      path: PATHS.openaiFiles,
      summary: "Upload a file of requests, or an image for edits, for OpenAI clients",
      formBody: "OpenaiUploadForm",
      answers: { 200: { description: "The file.", schema: "OpenaiFile" } },
      errors: [
        "REALTIME_INVALID_ARGUMENT",
        "UNSUPPORTED_MEDIA_TYPE",
        "REQUEST_TIMEOUT",
        "REQUEST_TOO_LARGE",
        "FILE_QUOTA_EXCEEDED",
        "BATCH_IMAGE_QUEUE_FAILED",
      ],
      handler: uploadFile,
    },
    {
      id: "listOpenaiFiles",
      method: "get",
      path: PATHS.openaiFiles,
      summary: "Uploaded files of this key, of both APIs",
      parameters: ["OpenaiLimit", "OpenaiAfter", "OpenaiOrder", "OpenaiPurpose"],
      answers: { 200: { description: "A page of files.", schema: "OpenaiFileList" } },
      errors: ["BATCH_IMAGE_INVALID_QUERY"],
      handler: listOpenaiFiles,
    },
    { ...download, id: "downloadOpenaiFile", path: PATHS.openaiFileContent },
    {
      ...one,
      id: "getOpenaiFile",
      method: "get",
      path: PATHS.openaiFile,
      summary: "One file",
      answers: { 200: { description: "The file.", schema: "OpenaiFile" } },
      errors: [...one.errors, "BATCH_IMAGE_DOWNLOAD_LIMITED"],
      handler: getOpenaiFile,
    },
    {
      ...one,
      id: "deleteOpenaiFile",
      method: "delete",
      path: PATHS.openaiFile,
      summary: "Delete a file; with the one of its images, those of a batch",
      answers: { 200: { description: "The file is deleted.", schema: "DeletedFile" } },
      errors: [...one.errors, "BATCH_IMAGE_QUEUE_FAILED"],
      handler: removeOpenaiFile,
    },
  ],
  credential: headerKey,
  errorStyles: [[/^\/v1\/(?:files|batches)(?:\/|$)/, openaiErrorStyle]],
};

const guards = [requireBatchGroup];
const groupErrors: readonly ServiceErrorCode[] = ["BATCH_IMAGE_GROUP_DISABLED"];

/** Batches of OpenAI's API. */
const batches: Surface = {
  tag: "batches",
  prefix: PATHS.openaiBatches,
  operations: [
    {
      id: "createOpenaiBatch",
      method: "post",
      path: PATHS.openaiBatches,
      summary: "Make many images as a batch, from a file of requests, for OpenAI clients",
      parameters: ["RetryCount", "MaxCost"],
      body: "CreateOpenaiBatch",
      answers: {
        200: { description: "The batch. Its lines are read and paid for later.", schema: "OpenaiBatch" },
      },
      errors: CREATION_ERRORS,
      guards: [requireBatchFeature, ...guards],
      handler: createOpenaiBatch,
    },
    {
      id: "listOpenaiBatches",
      method: "get",
      path: PATHS.openaiBatches,
      summary: "The batches that this key made with this API, newest first",
      parameters: ["OpenaiLimit", "OpenaiAfter"],
      answers: { 200: { description: "A page of batches.", schema: "OpenaiBatchList" } },
      errors: [...groupErrors, "BATCH_IMAGE_INVALID_QUERY"],
      guards,
      handler: listOpenaiBatches,
    },
    {
      id: "getOpenaiBatch",
      method: "get",
      path: PATHS.openaiBatch,
      summary: "A batch as it is now",
      parameters: ["OpenaiBatchId"],
      answers: { 200: { description: "The batch.", schema: "OpenaiBatch" } },
      errors: [...groupErrors, "JOB_NOT_FOUND"],
      guards,
      handler: getOpenaiBatch,
    },
    {
      id: "cancelOpenaiBatch",
      method: "post",
      path: PATHS.openaiBatchCancel,
      summary: "Stop a batch. What was made stays, and is paid for",
      parameters: ["OpenaiBatchId"],
      answers: { 200: { description: "The batch.", schema: "OpenaiBatch" } },
      errors: [...groupErrors, "JOB_NOT_FOUND", "BATCH_IMAGE_CANCEL_FAILED", "BATCH_IMAGE_QUEUE_FAILED"],
      guards,
      handler: cancelOpenaiBatch,
    },
  ],
  credential: headerKey,
};

/** OpenAI's API for files and batches. */
export const openaiBatches: readonly Surface[] = [files, batches];
