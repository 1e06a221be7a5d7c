import {
  type ErrorCode,
  errorEntry,
  ImgbatchError,
  SERVICE_ERRORS,
  type ServiceErrorCode,
} from "../contract/errors.ts";
import { NATIVE_DETAILS } from "../contract/native-api/generate-content.ts";
import { REQUEST_ID_HEADER } from "../contract/routes.ts";
import { hideUsedKeys, hideUsedKeysIn } from "../kernel/api-keys.ts";
import { truncateCodePoints } from "../kernel/text.ts";

const MAX_MESSAGE_CHARS = 2000;
/** A service that asks for a longer pause has not thought of it, or has no good intentions. */
const LONGEST_RETRY_AFTER_MS = 24 * 3_600_000;

/** The `domain` of the codes that are of this catalogue. */
const ERROR_DOMAIN = "imgbatch";

/** The catalogue's code for a status whose body names none, or one that is not ours. Any other is told as it is. */
const CODE_BY_STATUS: Record<number, ServiceErrorCode> = {
  401: "INVALID_API_KEY",
  402: "BATCH_IMAGE_INSUFFICIENT_BALANCE",
  403: "BATCH_IMAGE_GROUP_DISABLED",
  404: "NOT_FOUND",
  405: "METHOD_NOT_ALLOWED",
  409: "BATCH_IMAGE_IDEMPOTENCY_CONFLICT",
  410: "BATCH_IMAGE_OUTPUT_DELETED",
  413: "REQUEST_TOO_LARGE",
  415: "UNSUPPORTED_MEDIA_TYPE",
  429: "RATE_LIMITED",
  500: "INTERNAL_ERROR",
};

/** The same for a native body, where it differs. */
const NATIVE_CODE_BY_STATUS: Record<number, ServiceErrorCode> = {
  400: "REALTIME_INVALID_ARGUMENT",
  402: "REALTIME_INSUFFICIENT_BALANCE",
  404: "REALTIME_MODEL_NOT_FOUND",
};

/** What is known of the request. */
export interface AskedFor {
  /** Default `GET`. */
  method?: string;
  /** It was of the native API. Default: of the batch API. */
  isNative?: boolean;
}

/**
 * The error that an answer outside 2xx stands for. `text` is its body; the keys that this process sends are taken out of it.
 */
export function errorOfResponse(
  response: Response,
  text: string,
  nowMs: number,
  { method = "GET", isNative = false }: AskedFor = {},
): ImgbatchError {
  const body = readErrorBody(text);
  const requestId = response.headers.get(REQUEST_ID_HEADER);
  const facts = {
    httpStatus: response.status,
    requestId: requestId === null ? undefined : hideUsedKeys(requestId),
    retryAfterMs: body?.retryDelayMs ?? retryAfterMs(response.headers, nowMs) ?? undefined,
    param: body?.param,
  };
  if (body?.code !== undefined && Object.hasOwn(SERVICE_ERRORS, body.code)) {
    return new ImgbatchError(body.code as ServiceErrorCode, body.message, facts);
  }
  const code = isNative && body?.isNative ? nativeCodeOf(response.status) : codeOf(response.status, method);
  return new ImgbatchError(code, hideUsedKeys(describe(response, body)), facts);
}

/** Whether the service itself refused: a gateway or a fault half-way leaves open what happened. */
export function isRefusal(error: ImgbatchError): boolean {
  const isNamed = Object.hasOwn(SERVICE_ERRORS, error.code) && error.code !== "INTERNAL_ERROR";
  return isNamed && errorEntry(error.code).httpStatus === error.httpStatus;
}

function nativeCodeOf(status: number): ErrorCode {
  return NATIVE_CODE_BY_STATUS[status] ?? codeOf(status, "POST");
}

function codeOf(status: number, method: string): ErrorCode {
  // Only what makes something can be in conflict with itself; what is asked for is not there yet.
  if (status === 409 && method === "GET") return "BATCH_IMAGE_NOT_READY";
  if (status < 400) return "BAD_RESPONSE";
  return CODE_BY_STATUS[status] ?? `HTTP_${status}`;
}

function describe(response: Response, body: ForeignError | null): string {
  const target = response.headers.get("location");
  if (target !== null && response.status < 400)
    return `The service redirects to ${target}: give that as the base URL.`;
  if (body === null) return `The service answered HTTP ${response.status} without saying why.`;
  return body.code === undefined ? body.message : `${body.message} (${body.code})`;
}

interface ForeignError {
  code: string | undefined;
  message: string;
  param: string | undefined;
  retryDelayMs: number | undefined;
  /** Of the native API: its `code` is a number, and its `status` a word. */
  isNative: boolean;
}

/** The usual shapes: `{error: {code, message}}`, `{error: "…"}`, and `{message}` or `{detail}` without a wrapping. */
function readErrorBody(json: string): ForeignError | null {
  let body: unknown;
  try {
    body = hideUsedKeysIn(JSON.parse(json));
  } catch {
    return null;
  }
  if (!isRecord(body)) return null;
  const error = isRecord(body.error)
    ? body.error
    : { ...body, message: body.error ?? body.message ?? body.detail };
  const { message } = error;
  if (typeof message !== "string" || message === "") return null;
  return {
    message: truncateCodePoints(message, MAX_MESSAGE_CHARS, "…"),
    code: codeIn(error),
    param: text(error.param) ?? fieldIn(error.details),
    retryDelayMs: delayIn(error.details),
    isNative: isRecord(body.error) && typeof error.code === "number",
  };
}

/** Of a native error, the code of this kind of service when it gives one, else its status. */
function codeIn(error: Record<string, unknown>): string | undefined {
  const info = detail(error.details, NATIVE_DETAILS.errorInfo);
  const reason = info?.domain === ERROR_DOMAIN ? text(info.reason) : undefined;
  return reason ?? text(error.code) ?? text(error.status);
}

/** The first field that a native error blames. */
function fieldIn(details: unknown): string | undefined {
  const violations = detail(details, NATIVE_DETAILS.badRequest)?.fieldViolations;
  const first: unknown = Array.isArray(violations) ? violations[0] : undefined;
  return isRecord(first) ? text(first.field) : undefined;
}

/** The pause that a native error asks for, a day at most: `"2s"`, also with a fraction. */
function delayIn(details: unknown): number | undefined {
  const delay = text(detail(details, NATIVE_DETAILS.retryInfo)?.retryDelay);
  const [, seconds] = /^(\d+(?:\.\d+)?)s$/.exec(delay ?? "") ?? [];
  return seconds === undefined
    ? undefined
    : Math.min(Math.ceil(Number(seconds) * 1000), LONGEST_RETRY_AFTER_MS);
}

function detail(details: unknown, type: string): Record<string, unknown> | undefined {
  const list: unknown[] = Array.isArray(details) ? details : [];
  return list.filter(isRecord).find((entry) => entry["@type"] === type);
}

function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

/**
 * The pause that a `Retry-After` header asks for, in ms, a day at most: seconds or a date. Null when there is none.
 */
export function retryAfterMs(headers: Headers, nowMs: number): number | null {
  const value = headers.get("retry-after")?.trim();
  if (!value) return null;
  if (/^\d+$/.test(value)) return Math.min(Number(value) * 1000, LONGEST_RETRY_AFTER_MS);
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.min(Math.max(0, date - nowMs), LONGEST_RETRY_AFTER_MS);
}
