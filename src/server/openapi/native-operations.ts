import type { ServiceErrorCode } from "../../contract/errors.ts";
import type { Operation } from "./operation.ts";

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
  "REALTIME_STOPPING",
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

/** The two paths of a model list: all of it, and one entry. */
function models(
  prefix: string,
  api: NonNullable<Operation["api"]>,
  list: { id: string; summary: string; schema: string },
  one: { id: string; schema: string },
): Operation[] {
  const facts = { method: "get", needsKey: true, api } as const;
  return [
    {
      ...facts,
      id: list.id,
      path: `${prefix}/models`,
      summary: list.summary,
      parameters: ["PageSize", "PageToken"],
      answers: { 200: { description: "A page of models.", schema: list.schema } },
      errors: ["REALTIME_INVALID_ARGUMENT"],
    },
    {
      ...facts,
      id: one.id,
      path: `${prefix}/models/{model}`,
      summary: "One of them",
      parameters: ["Model"],
      answers: { 200: { description: "The model.", schema: one.schema } },
      errors: ["REALTIME_MODEL_NOT_FOUND"],
    },
  ];
}

const NATIVE_LIST = "Models that this key can use in real time, with sizes, ratios and prices";
const SHARED_LIST = "The same models, for OpenAI clients and native ones";

/** The native real-time API and the model lists. A verb comes before the model: its path looks like a model's, too. */
export const NATIVE_OPERATIONS: readonly Operation[] = [
  ...verbs("/v1beta", ""),
  ...verbs("/v1", "V1"),
  ...models(
    "/v1beta",
    "native",
    { id: "listNativeModels", summary: NATIVE_LIST, schema: "NativeModelList" },
    { id: "getNativeModel", schema: "NativeModel" },
  ),
  ...models(
    "/v1",
    "shared",
    { id: "listModels", summary: SHARED_LIST, schema: "SharedModelList" },
    { id: "getModel", schema: "SharedModel" },
  ),
];
