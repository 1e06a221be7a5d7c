import {
  ERRORS,
  type ErrorCode,
  ImgbatchError,
  SERVICE_ERRORS,
  type ServiceErrorCode,
} from "../contract/errors.ts";
import { NATIVE_DETAILS } from "../contract/generate-content.ts";
import { REQUEST_ID_HEADER } from "../contract/routes.ts";

/** The `domain` of the codes that are of this catalogue. */
const ERROR_DOMAIN = "imgbatch";

/** The catalogue's code for a status whose body names none, or one that is not ours. */
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
};

/** The same for a native body. */
const NATIVE_CODE_BY_STATUS: Record<number, ServiceErrorCode> = {
  ...CODE_BY_STATUS,
  400: "REALTIME_INVALID_ARGUMENT",
  402: "REALTIME_INSUFFICIENT_BALANCE",
  404: "REALTIME_MODEL_NOT_FOUND",
};

/**
 * The error that an answer outside 2xx stands for. `text` is its body.
 * Rule: HTTP-5.
 */
export function answerError(response: Response, text: string, nowMs: number): ImgbatchError {
  const body = readErrorBody(text);
  const facts = {
    httpStatus: response.status,
    requestId: response.headers.get(REQUEST_ID_HEADER) ?? undefined,
    retryAfterMs: body?.retryDelayMs ?? retryAfterMs(response.headers, nowMs) ?? undefined,
    param: body?.param,
  };
  if (body?.code !== undefined && Object.hasOwn(SERVICE_ERRORS, body.code)) {
    return new ImgbatchError(body.code as ServiceErrorCode, body.message, facts);
  }
  const codes = body?.isNative ? NATIVE_CODE_BY_STATUS : CODE_BY_STATUS;
  return new ImgbatchError(codeOf(response.status, codes), describe(response, body), facts);
}

/** Whether the service itself refused: a gateway or a fault half-way leaves open what happened. */
export function isRefusal(error: ImgbatchError): boolean {
  return error.code !== "INTERNAL_ERROR" && ERRORS[error.code].httpStatus === error.httpStatus;
}

function codeOf(status: number, codes: Record<number, ServiceErrorCode>): ErrorCode {
  if (status < 400) return "BAD_RESPONSE";
  if (status >= 500) return "INTERNAL_ERROR";
  return codes[status] ?? "BATCH_IMAGE_INVALID_ITEMS";
}

function describe(response: Response, body: ForeignError | null): string {
  const target = response.headers.get("location");
  if (target !== null) return `The service redirects to ${target}: give that as the base URL.`;
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

function readErrorBody(json: string): ForeignError | null {
  let body: unknown;
  try {
    body = JSON.parse(json);
  } catch {
    return null;
  }
  const error = isRecord(body) ? body.error : undefined;
  if (!isRecord(error) || typeof error.message !== "string" || error.message === "") return null;
  return {
    message: error.message,
    code: codeIn(error),
    param: text(error.param) ?? fieldIn(error.details),
    retryDelayMs: delayIn(error.details),
    isNative: typeof error.code === "number",
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

/** The pause that a native error asks for: `"2s"`, also with a fraction. */
function delayIn(details: unknown): number | undefined {
  const delay = text(detail(details, NATIVE_DETAILS.retryInfo)?.retryDelay);
  const [, seconds] = /^(\d+(?:\.\d+)?)s$/.exec(delay ?? "") ?? [];
  return seconds === undefined ? undefined : Math.ceil(Number(seconds) * 1000);
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
 * The pause that a `Retry-After` header asks for, in ms: seconds or a date. Null when there is none.
 * Rule: HTTP-2.
 */
export function retryAfterMs(headers: Headers, nowMs: number): number | null {
  const value = headers.get("retry-after")?.trim();
  if (!value) return null;
  if (/^\d+$/.test(value)) return Number(value) * 1000;
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.max(0, date - nowMs);
}
