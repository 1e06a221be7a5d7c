import type { ServiceErrorCode } from "../contract/errors.ts";
import type { Operation } from "./openapi-operation.ts";

/** Every operation of the native API can answer these. */
export const WITH_NATIVE_KEY: readonly ServiceErrorCode[] = [
  "API_KEY_REQUIRED",
  "INVALID_API_KEY",
  "API_KEY_DISABLED",
  "RATE_LIMITED",
  "REALTIME_GROUP_NOT_NATIVE",
];

const generateErrors: readonly ServiceErrorCode[] = [
  "REALTIME_INVALID_ARGUMENT",
  "REALTIME_MODEL_NOT_FOUND",
  "UNSUPPORTED_MEDIA_TYPE",
  "REQUEST_TOO_LARGE",
  "INVALID_JSON",
  "REALTIME_NO_PROVIDER",
  "REALTIME_INSUFFICIENT_BALANCE",
  "REALTIME_PROVIDER_LIMITED",
  "REALTIME_PROVIDER_FAILED",
  "REALTIME_PROVIDER_UNREACHABLE",
  "REALTIME_PROVIDER_OVERLOADED",
  "REALTIME_TIMEOUT",
  "REALTIME_CANCELLED",
];

/** The verbs, which both version prefixes have. */
function verbs(prefix: string, suffix: string): Operation[] {
  const facts = { method: "post", needsKey: true, api: "native", body: "GenerateContent" } as const;
  return [
    {
      ...facts,
      id: `generateContent${suffix}`,
      path: `${prefix}/models/{model}:generateContent`,
      summary: "Make or edit an image and wait for it",
      parameters: ["Model"],
      answers: {
        200: {
          description: "What was made. Without an `inlineData` part nothing was, and nothing is paid.",
          schema: "GenerateContentAnswer",
        },
      },
      errors: generateErrors,
    },
    {
      ...facts,
      id: `streamGenerateContent${suffix}`,
      path: `${prefix}/models/{model}:streamGenerateContent`,
      summary: "The same as a stream",
      parameters: ["Model", "Alt"],
      answers: {
        200: {
          description:
            "Parts of the answer, the last with `finishReason`; or an error, which ends the stream.",
          streamOf: "GenerateContentAnswer",
        },
      },
      errors: generateErrors,
    },
  ];
}

/** The native real-time API and the model lists. A verb comes before the model: its path looks like a model's, too. */
export const NATIVE_OPERATIONS: readonly Operation[] = [
  ...verbs("/v1beta", ""),
  ...verbs("/v1", "V1"),
  {
    id: "listNativeModels",
    method: "get",
    path: "/v1beta/models",
    summary: "Models that this key can use in real time, with sizes, ratios and prices",
    needsKey: true,
    api: "native",
    parameters: ["PageSize", "PageToken"],
    answers: { 200: { description: "A page of models.", schema: "NativeModelList" } },
    errors: ["REALTIME_INVALID_ARGUMENT"],
  },
  {
    id: "getNativeModel",
    method: "get",
    path: "/v1beta/models/{model}",
    summary: "One of them",
    needsKey: true,
    api: "native",
    parameters: ["Model"],
    answers: { 200: { description: "The model.", schema: "NativeModel" } },
    errors: ["REALTIME_MODEL_NOT_FOUND"],
  },
  {
    id: "listModels",
    method: "get",
    path: "/v1/models",
    summary: "The same models, for OpenAI clients and native ones",
    needsKey: true,
    api: "shared",
    parameters: ["PageSize", "PageToken"],
    answers: { 200: { description: "The models.", schema: "SharedModelList" } },
    errors: ["REALTIME_INVALID_ARGUMENT"],
  },
  {
    id: "getModel",
    method: "get",
    path: "/v1/models/{model}",
    summary: "One of them",
    needsKey: true,
    api: "shared",
    parameters: ["Model"],
    answers: { 200: { description: "The model.", schema: "SharedModel" } },
    errors: ["REALTIME_MODEL_NOT_FOUND"],
  },
];
