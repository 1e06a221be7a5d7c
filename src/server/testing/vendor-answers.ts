import { randomUUID } from "node:crypto";
import { NATIVE_DETAILS, nativeStatus } from "../../contract/errors.ts";
import type { Vendor } from "../../contract/test-api.ts";
import { fieldsOf } from "../../kernel/json.ts";
import { interactionErrorCode } from "../native-api/interactions.ts";

/** An answer as the vendor itself would give it. */
export interface VendorAnswer {
  status: number;
  headers: Record<string, string>;
  body: string;
}

/** The request that is answered. */
export interface AnsweredRequest {
  vendor: Vendor;
  path: string;
  /** Whether the query asks for events (`alt=sse`). */
  hasSse: boolean;
  /** The model that it names; null when it names none. */
  model: string | null;
  /** Its JSON, or the fields of its form. */
  body: unknown;
}

/** The operations that answer with images. */
type Kind = "content" | "images" | "response" | "interaction";

const KINDS: readonly (readonly [RegExp, Kind])[] = [
  [/:(?:streamG|g)enerateContent$/, "content"],
  [/\/images\/(?:generations|edits)$/, "images"],
  [/\/responses$/, "response"],
  [/\/interactions$/, "interaction"],
];

/** Returns which operation with images a request calls; null for any other operation. */
export function kindOf(method: string, path: string): Kind | null {
  if (method !== "POST") return null;
  return KINDS.find(([form]) => form.test(path))?.[1] ?? null;
}

const json = (status: number, value: unknown): VendorAnswer => ({
  status,
  headers: { "Content-Type": "application/json; charset=UTF-8" },
  body: `${JSON.stringify(value, null, 2)}\n`,
});

const events = (list: readonly (readonly [name: string | null, value: object])[]): VendorAnswer => ({
  status: 200,
  headers: { "Content-Type": "text/event-stream", "Cache-Control": "no-cache" },
  body: list
    .map(([name, value]) => `${name === null ? "" : `event: ${name}\n`}data: ${JSON.stringify(value)}\n\n`)
    .join(""),
});

/** Google's words for its statuses. */
const GOOGLE_MESSAGES: Record<number, string> = {
  400: "Request contains an invalid argument.",
  401: "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential.",
  403: "The caller does not have permission",
  404: "Requested entity was not found.",
  409: "The operation was aborted.",
  429: "Resource has been exhausted (e.g. check quota).",
  499: "The operation was cancelled.",
  503: "The model is overloaded. Please try again later.",
  504: "Deadline expired before operation could complete.",
};

/** OpenAI's words, with type and code. `{model}`: the model of the request. */
const OPENAI_ERRORS: Record<number, { message: string; type?: string; code?: string }> = {
  400: { message: "Your request is invalid." },
  401: {
    message:
      "Incorrect API key provided. You can find your API key at https://platform.openai.com/account/api-keys.",
    code: "invalid_api_key",
  },
  403: { message: "Your organization must be verified to use the model `{model}`." },
  404: {
    message: "The model `{model}` does not exist or you do not have access to it.",
    code: "model_not_found",
  },
  429: {
    message: "Rate limit reached for {model} on images per min (IPM): Limit 5, Used 5, Requested 1.",
    type: "requests",
    code: "rate_limit_exceeded",
  },
  503: { message: "The engine is currently overloaded, please try again later." },
};
const OPENAI_FAILED = "The server had an error while processing your request. Sorry about that!";

/** The vendor's error of a status. `retryAfter`: seconds, also in its words. */
export function errorAnswer(
  request: AnsweredRequest,
  status: number,
  retryAfter: number | undefined,
): VendorAnswer {
  const body =
    request.vendor === "google"
      ? googleError(request, status, retryAfter)
      : openaiError(request, status, retryAfter);
  const answer = json(status, body);
  if (retryAfter !== undefined) answer.headers["Retry-After"] = String(retryAfter);
  return answer;
}

function googleError(request: AnsweredRequest, status: number, retryAfter: number | undefined): object {
  const again = retryAfter === undefined ? "" : ` Please retry in ${retryAfter}s.`;
  const message = (GOOGLE_MESSAGES[status] ?? fallbackOf(status)) + again;
  const code = nativeStatus(status);
  // An error of this operation has a word as its code, and no status.
  if (isInteraction(request)) return interactionError(status, message);
  const details =
    retryAfter === undefined
      ? {}
      : { details: [{ "@type": NATIVE_DETAILS.retryInfo, retryDelay: `${retryAfter}s` }] };
  const error = { error: { code: status, message, status: code, ...details } };
  return isArray(request) ? [error] : error;
}

const isInteraction = ({ path }: AnsweredRequest) => /\/interactions(?:\/|$)/.test(path);

function interactionError(status: number, message: string): object {
  return { error: { code: interactionErrorCode(status), message } };
}

const fallbackOf = (status: number) =>
  status < 500
    ? "Request contains an invalid argument."
    : "An internal error has occurred. Please retry or report in https://developers.generativeai.google/guide/troubleshooting";

function openaiError({ model }: AnsweredRequest, status: number, retryAfter: number | undefined): object {
  const known = OPENAI_ERRORS[status];
  const words = known?.message ?? (status < 500 ? "Your request is invalid." : OPENAI_FAILED);
  const again = status === 429 && retryAfter !== undefined ? ` Please try again in ${retryAfter}s.` : "";
  const message = words.replace("{model}", model ?? "gpt-image") + again;
  const type = known?.type ?? (status < 500 ? "invalid_request_error" : "server_error");
  return { error: { message, type, param: null, code: known?.code ?? null } };
}

/** Whether the answer is a stream that is one JSON array. */
const isArray = ({ path, hasSse }: AnsweredRequest) => path.endsWith(":streamGenerateContent") && !hasSse;

const isStream = ({ body }: AnsweredRequest) => /^true$/i.test(String(fieldsOf(body)?.stream));

/** Returns a successful answer without images. */
export function emptyAnswer(request: AnsweredRequest, kind: Kind): VendorAnswer {
  if (kind === "content") return contentAnswer(request, { candidates: [] });
  if (kind === "images")
    return isStream(request) ? events([]) : json(200, { created: nowSeconds(), data: [] });
  if (kind === "interaction") return interactionAnswer(request);
  const whole = responseOf(request);
  if (!isStream(request)) return json(200, whole);
  const begun = { ...whole, status: "in_progress" };
  return events([
    ["response.created", { type: "response.created", response: begun, sequence_number: 0 }],
    ["response.completed", { type: "response.completed", response: whole, sequence_number: 1 }],
  ]);
}

/** Reasons for which Google refuses a prompt. Those of a picture (`IMAGE_SAFETY`, `NO_IMAGE`) end a candidate. */
const PROMPT_REASONS: readonly string[] = ["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT"];
const PICTURE_REASONS = /^(?:IMAGE_[A-Z]+(?:_[A-Z]+)*|NO_IMAGE|RECITATION|SPII)$/;

/** A refusal. A reason that is no word of Google's is its message. */
export function refusalAnswer(request: AnsweredRequest, kind: Kind, reason: string): VendorAnswer {
  if (kind === "content") {
    if (PICTURE_REASONS.test(reason))
      return contentAnswer(request, { candidates: [{ finishReason: reason, index: 0 }] });
    const promptFeedback = PROMPT_REASONS.includes(reason)
      ? { blockReason: reason }
      : { blockReason: "PROHIBITED_CONTENT", blockReasonMessage: reason };
    return contentAnswer(request, { promptFeedback });
  }
  if (kind === "interaction") return json(400, interactionError(400, reason));
  const message = `Your request was rejected by the safety system. If you believe this is an error, contact us at help.openai.com. safety_violations=[${reason}].`;
  const error = { message, type: "image_generation_user_error", param: null, code: "moderation_blocked" };
  return json(400, { error });
}

/** An answer of `generateContent`, or its stream of one part. */
function contentAnswer(request: AnsweredRequest, facts: object): VendorAnswer {
  const usageMetadata = { promptTokenCount: 8, totalTokenCount: 8 };
  const body = { ...facts, usageMetadata, modelVersion: request.model ?? "", responseId: randomUUID() };
  if (isArray(request)) return json(200, [body]);
  return request.path.endsWith(":streamGenerateContent") ? events([[null, body]]) : json(200, body);
}

function responseOf({ model, body }: AnsweredRequest): object {
  const { tools = [], model: named = model } = fieldsOf(body) ?? {};
  return {
    id: `resp_${randomUUID().replaceAll("-", "")}`,
    object: "response",
    created_at: nowSeconds(),
    status: "completed",
    error: null,
    incomplete_details: null,
    instructions: null,
    metadata: {},
    model: named,
    output: [],
    parallel_tool_calls: true,
    temperature: 1,
    tool_choice: "auto",
    tools,
    top_p: 1,
  };
}

function interactionAnswer(request: AnsweredRequest): VendorAnswer {
  const now = new Date().toISOString();
  const interaction = {
    id: `v1_${randomUUID()}`,
    object: "interaction",
    model: request.model,
    created: now,
    updated: now,
    status: "completed",
  };
  if (!isStream(request)) return json(200, { ...interaction, steps: [] });
  const begun = { ...interaction, status: "in_progress" };
  return events([
    ["interaction.created", { event_type: "interaction.created", interaction: begun }],
    ["interaction.completed", { event_type: "interaction.completed", interaction }],
  ]);
}

const nowSeconds = () => Math.floor(Date.now() / 1000);
