import type { ServiceErrorCode } from "../../contract/errors.ts";
import { PATHS } from "../../contract/routes.ts";
import type { Answer, Credential, Operation, Surface } from "../operation.ts";
import { headerKey, headerOrQueryKey } from "./credential.ts";
import { downloadFile, getFile, listFiles, removeFile } from "./files.ts";
import { generate } from "./generate.ts";
import { createJobOperation, jobOperations } from "./jobs.ts";
import { nativeModel, nativeModels, sharedModel, sharedModels } from "./models.ts";
import { nativeErrorStyles, readVersion, screenModelPath } from "./paths.ts";
import { UPLOAD_HEADERS, UPLOAD_ID, upload } from "./uploads.ts";

const oneFile = { parameters: ["File"], errors: ["FILE_NOT_FOUND"] } as const;

const headers = [
  "ContentLength",
  "ContentDisposition",
  "ETag",
  "AcceptRanges",
  "CacheControl",
  "NoSniff",
] as const;
const bytes = ["*/*"];
const downloads: Record<number, Answer> = {
  200: { description: "The bytes, with the declared type of the file.", bytes, headers },
  206: { description: "The range that was asked for.", bytes, headers: [...headers, "ContentRange"] },
  304: { description: "Unchanged since the ETag of `If-None-Match`.", headers: ["ETag"] },
  416: { description: "The range begins after the end.", headers: ["ContentRange"] },
};

/** The download of a file, but for its id and its path. */
export const download = {
  method: "get",
  summary: "The bytes of a file",
  parameters: ["File", "Range", "IfRange", "IfNoneMatch"],
  answers: downloads,
  errors: ["FILE_NOT_FOUND", "BATCH_IMAGE_DOWNLOAD_LIMITED", "BATCH_IMAGE_RESULT_MISSING"],
  handler: downloadFile,
} as const satisfies Partial<Operation>;

const uploadErrors: readonly ServiceErrorCode[] = [
  "REALTIME_INVALID_ARGUMENT",
  "INVALID_JSON",
  "UNSUPPORTED_MEDIA_TYPE",
  "REQUEST_TIMEOUT",
  "REQUEST_TOO_LARGE",
  "FILE_NAME_TAKEN",
  "FILE_QUOTA_EXCEEDED",
  "FILE_UPLOAD_NOT_FOUND",
  "FILE_UPLOAD_TAKEN_OVER",
  "BATCH_IMAGE_QUEUE_FAILED",
];

const OPERATIONS: readonly Operation[] = [
  {
    id: "listFiles",
    method: "get",
    path: PATHS.files,
    summary: "Uploaded files of this key, newest first",
    parameters: ["FilePageSize", "PageToken"],
    answers: { 200: { description: "A page of files.", schema: "NativeFileList" } },
    errors: ["REALTIME_INVALID_ARGUMENT"],
    handler: listFiles,
  },
  { ...download, id: "downloadFile", path: PATHS.fileDownload },
  {
    ...oneFile,
    id: "getFile",
    method: "get",
    path: PATHS.file,
    summary: "One file",
    answers: { 200: { description: "The file.", schema: "NativeFile" } },
    handler: getFile,
  },
  {
    ...oneFile,
    id: "deleteFile",
    method: "delete",
    path: PATHS.file,
    summary: "Delete a file",
    answers: { 200: { description: "The file is deleted.", schema: "Empty" } },
    errors: [...oneFile.errors, "BATCH_IMAGE_QUEUE_FAILED"],
    handler: removeFile,
  },
];

/** Files of the vendor's API. They stand before the rest of it: its credential guards all paths below `/v1beta`. */
export const nativeFiles: Surface = {
  tag: "files",
  prefix: PATHS.files,
  operations: OPERATIONS,
  credential: headerOrQueryKey,
};

/** The second path of a download. The key is not taken from its URL. */
export const nativeDownloads: Surface = {
  tag: "files",
  prefix: "/download",
  operations: [{ ...download, id: "downloadFileAlone", path: PATHS.fileDownloadAlone }],
  credential: headerKey,
};

/** The id of an upload stands for the key that began it. */
const keyOrUploadId: Credential = {
  schemes: [...headerOrQueryKey.schemes, "uploadId"],
  errors: headerOrQueryKey.errors,
  authenticate: (deps) => {
    const authenticated = headerOrQueryKey.authenticate(deps);
    return (request, response, next) =>
      request.query[UPLOAD_ID] === undefined ? authenticated(request, response, next) : next();
  },
};

export const nativeUploads: Surface = {
  tag: "files",
  prefix: "/upload",
  operations: [
    {
      id: "uploadFile",
      method: "post",
      path: PATHS.uploads,
      summary:
        "Upload a file: begin, send the bytes to the URL of the answer, finish; or all in one multipart body",
      parameters: [
        "UploadId",
        "UploadCommand",
        "UploadOffset",
        "UploadProtocol",
        "UploadFileBytes",
        "UploadFileType",
      ],
      body: "StartUpload",
      bytesBody: ["*/*", "multipart/related", "multipart/form-data"],
      answers: {
        200: {
          description: "The state of the upload is in the headers; `file` is there once it is finished.",
          schema: "UploadedFile",
          headers: ["UploadStatus", "UploadUrl", "UploadReceived"],
        },
      },
      errors: uploadErrors,
      handler: upload,
    },
  ],
  credential: keyOrUploadId,
  // For every response that no upload stands behind, errors before the handler among them.
  screen: () => (request, response, next) => {
    if (request.path.startsWith("/upload/")) response.setHeader(UPLOAD_HEADERS.status, "cancelled");
    next();
  },
};

/** The errors of every request that makes images in real time. */
export const generateErrors: readonly ServiceErrorCode[] = [
  "REALTIME_INVALID_ARGUMENT",
  "REALTIME_MODEL_NOT_FOUND",
  "UNSUPPORTED_MEDIA_TYPE",
  "REQUEST_TOO_LARGE",
  "INVALID_JSON",
  "REALTIME_NO_PROVIDER",
  "REALTIME_INSUFFICIENT_BALANCE",
  "REALTIME_PROVIDER_PAUSES",
  "REALTIME_PROVIDER_LIMITED",
  "REALTIME_PROVIDER_FAILED",
  "REALTIME_PROVIDER_UNREACHABLE",
  "REALTIME_PROVIDER_OVERLOADED",
  "REALTIME_TIMEOUT",
  "REALTIME_IDEMPOTENCY_CONFLICT",
  "REALTIME_OUTCOME_UNKNOWN",
  "BATCH_IMAGE_RESULT_MISSING",
  "REALTIME_CANCELLED",
  "REALTIME_STOPPING",
];

const verb = { method: "post", body: "GenerateContent", errors: generateErrors } as const;
const list = {
  method: "get",
  parameters: ["PageSize", "PageToken"],
  errors: ["REALTIME_INVALID_ARGUMENT"],
} as const;
const oneModel = {
  method: "get",
  summary: "One of them",
  parameters: ["Model"],
  errors: ["REALTIME_MODEL_NOT_FOUND"],
} as const;

/** The native real-time API. A verb stands before the model: its path looks like the path of a model. */
export const nativeApi: Surface = {
  tag: "realtime",
  prefix: "/v1beta",
  operations: [
    {
      ...verb,
      id: "generateContent",
      path: `${PATHS.nativeModel}:generateContent`,
      summary: "Make or edit an image and wait for it",
      parameters: ["Model", "RequestKey", "MaxCost"],
      answers: {
        200: {
          description: "The image. A response without an `inlineData` part has none, and costs nothing.",
          schema: "GenerateContentAnswer",
          headers: ["RequestReplayed"],
        },
      },
      handler: (deps) => generate(deps, { isStream: false }),
    },
    {
      ...verb,
      id: "streamGenerateContent",
      path: `${PATHS.nativeModel}:streamGenerateContent`,
      summary: "The same as a stream",
      parameters: ["Model", "Alt", "RequestKey", "MaxCost"],
      answers: {
        200: {
          description:
            "Parts of the answer, the last with `finishReason`; or an error, which ends the stream.",
          streamOf: "GenerateContentAnswer",
          headers: ["RequestReplayed"],
        },
      },
      handler: (deps) => generate(deps, { isStream: true }),
    },
    createJobOperation,
    {
      ...list,
      id: "listNativeModels",
      path: PATHS.nativeModels,
      summary: "Models that this key can use in real time, with sizes, ratios and prices",
      answers: { 200: { description: "A page of models.", schema: "NativeModelList" } },
      handler: nativeModels,
    },
    {
      ...oneModel,
      id: "getNativeModel",
      path: PATHS.nativeModel,
      answers: { 200: { description: "The model.", schema: "NativeModel" } },
      handler: nativeModel,
    },
    ...jobOperations,
  ],
  credential: headerOrQueryKey,
  readPath: readVersion,
  screen: screenModelPath(headerOrQueryKey.authenticate),
  errorStyles: nativeErrorStyles,
};

/** The model list of `/v1` for OpenAI clients; native clients on `/v1` get the one of `/v1beta`. */
export const sharedModelList: Surface = {
  tag: "realtime",
  prefix: PATHS.sharedModels,
  operations: [
    {
      ...list,
      id: "listModels",
      path: PATHS.sharedModels,
      summary: "The same models, for OpenAI clients",
      answers: { 200: { description: "A page of models.", schema: "SharedModelList" } },
      handler: sharedModels,
    },
    {
      ...oneModel,
      id: "getModel",
      path: PATHS.sharedModel,
      answers: { 200: { description: "The model.", schema: "SharedModel" } },
      handler: sharedModel,
    },
  ],
  credential: headerKey,
  screen: screenModelPath(headerKey.authenticate),
};
