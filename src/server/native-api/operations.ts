import type { ServiceErrorCode } from "../../contract/errors.ts";
import { PATHS } from "../../contract/routes.ts";
import type { Surface } from "../operation.ts";
import { headerKey, headerOrQueryKey } from "./credentials.ts";
import { nativeErrorStyles } from "./error-style.ts";
import { generate } from "./generate.ts";
import { createJobOperation, jobOperations } from "./jobs/operations.ts";
import { screenModelPath } from "./model-path.ts";
import { nativeModel, nativeModels, sharedModel, sharedModels } from "./models.ts";
import { readVersion } from "./version.ts";

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
const one = {
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
      ...one,
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
      ...one,
      id: "getModel",
      path: PATHS.sharedModel,
      answers: { 200: { description: "The model.", schema: "SharedModel" } },
      handler: sharedModel,
    },
  ],
  credential: headerKey,
  screen: screenModelPath(headerKey.authenticate),
};
