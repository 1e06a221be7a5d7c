import type { ServiceErrorCode } from "../../contract/errors.ts";
import { PATHS } from "../../contract/routes.ts";
import type { Credential, Operation, Surface } from "../operation.ts";
import { authenticateNative } from "./authenticate.ts";
import { nativeErrorStyles } from "./error-style.ts";
import { generate } from "./generate.ts";
import { createJobOperation, jobOperations } from "./jobs/operations.ts";
import { screenModelPath } from "./model-path.ts";
import { nativeModel, nativeModels, sharedModel, sharedModels } from "./models.ts";

const generateErrors: readonly ServiceErrorCode[] = [
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
  "REALTIME_CANCELLED",
  "REALTIME_STOPPING",
];

/** The verbs, which both version prefixes have. */
function verbs(model: string, suffix: string): Operation[] {
  const facts = { method: "post", body: "GenerateContent" } as const;
  return [
    {
      ...facts,
      id: `generateContent${suffix}`,
      path: `${model}:generateContent`,
      summary: "Make or edit an image and wait for it",
      parameters: ["Model", "MaxCost"],
      answers: {
        200: {
          description: "The image. A response without an `inlineData` part has none, and costs nothing.",
          schema: "GenerateContentAnswer",
        },
      },
      errors: generateErrors,
      handler: (deps) => generate(deps, { isStream: false }),
    },
    {
      ...facts,
      id: `streamGenerateContent${suffix}`,
      path: `${model}:streamGenerateContent`,
      summary: "The same as a stream",
      parameters: ["Model", "Alt", "MaxCost"],
      answers: {
        200: {
          description:
            "Parts of the answer, the last with `finishReason`; or an error, which ends the stream.",
          streamOf: "GenerateContentAnswer",
        },
      },
      errors: generateErrors,
      handler: (deps) => generate(deps, { isStream: true }),
    },
    createJobOperation(model, suffix),
  ];
}

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

const errors: readonly ServiceErrorCode[] = [
  "API_KEY_REQUIRED",
  "INVALID_API_KEY",
  "API_KEY_DISABLED",
  "RATE_LIMITED",
  "REALTIME_GROUP_NOT_NATIVE",
];
const headerOnly: Credential = {
  schemes: ["apiKey", "headerKey"],
  authenticate: (deps) => authenticateNative(deps),
  errors,
};
const headerOrQuery: Credential = {
  schemes: ["apiKey", "headerKey", "queryKey"],
  authenticate: (deps) => authenticateNative(deps, { queryParameter: "key" }),
  errors,
};

/** The native real-time API. A verb stands before the model: its path looks like the path of a model. */
export const nativeApi: Surface = {
  tag: "realtime",
  prefix: "/v1beta",
  operations: [
    ...verbs(PATHS.nativeModel, ""),
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
    ...jobOperations(PATHS.nativeJobs, PATHS.nativeJob, ""),
  ],
  credential: headerOrQuery,
  screen: screenModelPath(headerOrQuery.authenticate),
  errorStyles: nativeErrorStyles,
};

/** The same verbs under the other version prefix, and a model list that clients of two kinds read. */
export const sharedModelList: Surface = {
  tag: "realtime",
  prefix: PATHS.sharedModels,
  operations: [
    ...verbs(PATHS.sharedModel, "V1"),
    {
      ...list,
      id: "listModels",
      path: PATHS.sharedModels,
      summary: "The same models, for OpenAI clients and native ones",
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
  credential: headerOnly,
  screen: screenModelPath(headerOnly.authenticate),
};
