import type { RequestHandler } from "express";
import type { ServiceErrorCode } from "../../contract/errors.ts";
import { PATHS } from "../../contract/routes.ts";
import { requireBatchFeature, requireBatchGroup } from "../http/authenticate.ts";
import { CREATION_ERRORS } from "../jobs/vendor-jobs.ts";
import { headerKey } from "../native-api/credential.ts";
import { download, generateErrors } from "../native-api/operations.ts";
import type { Answer, Surface } from "../operation.ts";
import { cancelOpenaiBatch, createOpenaiBatch, getOpenaiBatch, listOpenaiBatches } from "./batches.ts";
import { getOpenaiFile, listOpenaiFiles, removeOpenaiFile, uploadFile } from "./files.ts";
import { imageOutput, makeImages, openaiErrorStyle, openaiErrorStyles } from "./images.ts";

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

const errors: readonly ServiceErrorCode[] = [
  ...generateErrors,
  "REALTIME_REFUSED",
  "REALTIME_NO_IMAGE",
  "REQUEST_TIMEOUT",
  "BATCH_IMAGE_QUEUE_FAILED",
];

const answers: Record<number, Answer> = {
  200: {
    description: "The images that were made; with `stream`, an event for each of them.",
    schema: "Images",
    eventsOf: "ImageEvent",
    headers: ["RequestReplayed"],
  },
};

const make = { method: "post", parameters: ["RequestKey", "MaxCost"], answers, errors } as const;

/** `/images/…` is read as `/v1/images/…`: some clients add the version to their base URL, others do not. */
const readPath = (): RequestHandler => (request, _response, next) => {
  request.url = request.url.replace(/^\/images\/(?=(?:generations|edits)(?:[/?]|$))/, "/v1/images/");
  next();
};

const generations: Surface = {
  tag: "realtime",
  prefix: PATHS.imageGenerations,
  operations: [
    {
      ...make,
      id: "generateImages",
      path: PATHS.imageGenerations,
      summary: "Make images and wait for them, for OpenAI clients",
      body: "GenerateImages",
      handler: (deps) => makeImages(deps, { isEdit: false }),
    },
  ],
  credential: headerKey,
  readPath,
  errorStyles: openaiErrorStyles,
};

const edits: Surface = {
  tag: "realtime",
  prefix: PATHS.imageEdits,
  operations: [
    {
      ...make,
      id: "editImages",
      path: PATHS.imageEdits,
      summary: "The same from images of yours",
      body: "EditImages",
      formBody: "EditImagesForm",
      handler: (deps) => makeImages(deps, { isEdit: true }),
    },
  ],
  credential: headerKey,
};

const headers = ["ContentLength", "ContentDisposition", "ETag", "AcceptRanges", "CacheControl", "NoSniff"];
const bytes = ["image/png", "image/jpeg", "image/webp"];

const outputs: Surface = {
  tag: "realtime",
  prefix: "/v1/images/outputs",
  operations: [
    {
      id: "getImageOutput",
      method: "get",
      path: PATHS.imageOutput,
      summary: "An image that was asked for by URL, for an hour",
      parameters: ["OutputName", "Range", "IfRange", "IfNoneMatch"],
      answers: {
        200: { description: "The image.", bytes, headers },
        206: { description: "The range that was asked for.", bytes, headers: [...headers, "ContentRange"] },
        304: { description: "Unchanged since the ETag of `If-None-Match`.", headers: ["ETag"] },
        416: { description: "The range begins after the end.", headers: ["ContentRange"] },
      },
      errors: ["REALTIME_OUTPUT_NOT_FOUND"],
      handler: imageOutput,
    },
  ],
  credential: null,
};

/** OpenAI's API for images. */
export const openaiImages: readonly Surface[] = [generations, edits, outputs];
