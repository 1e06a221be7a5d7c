import {
  ERRORS,
  type ErrorCode,
  ImgbatchError,
  SERVICE_ERRORS,
  type ServiceErrorCode,
} from "../contract/errors.ts";
import { REQUEST_ID_HEADER } from "../contract/routes.ts";
import { truncateCodePoints } from "../kernel/text.ts";

const MAX_MESSAGE_CHARS = 2000;
/** A service that asks for a longer pause has not thought of it, or has no good intentions. */
const LONGEST_RETRY_AFTER_MS = 24 * 3_600_000;

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

/**
 * The error that an answer outside 2xx stands for. `text` is its body; `hide` takes secrets out of what it says.
 * Rule: HTTP-5.
 */
export function answerError(
  response: Response,
  text: string,
  nowMs: number,
  { hide = (same) => same, method = "GET" }: { hide?: (text: string) => string; method?: string } = {},
): ImgbatchError {
  const body = readErrorBody(hide(text));
  const requestId = response.headers.get(REQUEST_ID_HEADER);
  const facts = {
    httpStatus: response.status,
    requestId: requestId === null ? undefined : hide(requestId),
    retryAfterMs: retryAfterMs(response.headers, nowMs) ?? undefined,
    param: body?.param,
  };
  if (body?.code !== undefined && Object.hasOwn(SERVICE_ERRORS, body.code)) {
    return new ImgbatchError(body.code as ServiceErrorCode, body.message, facts);
  }
  return new ImgbatchError(codeOf(response.status, method), hide(describe(response, body)), facts);
}

/** Whether the service itself refused: a gateway or a fault half-way leaves open what happened. */
export function isRefusal(error: ImgbatchError): boolean {
  return error.code !== "INTERNAL_ERROR" && ERRORS[error.code].httpStatus === error.httpStatus;
}

function codeOf(status: number, method: string): ErrorCode {
  // Only what makes something can be in conflict with itself; what is asked for is not there yet.
  if (status === 409 && method === "GET") return "BATCH_IMAGE_NOT_READY";
  if (status < 400) return "BAD_RESPONSE";
  if (status >= 500) return "INTERNAL_ERROR";
  return CODE_BY_STATUS[status] ?? "BATCH_IMAGE_INVALID_ITEMS";
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
}

/** The usual shapes: `{error: {code, message}}`, `{error: "…"}`, and `{message}` or `{detail}` without a wrapping. */
function readErrorBody(text: string): ForeignError | null {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return null;
  }
  if (!isRecord(body)) return null;
  const error = isRecord(body.error)
    ? body.error
    : { ...body, message: body.error ?? body.message ?? body.detail };
  const { message, code, status, param } = error;
  if (typeof message !== "string" || message === "") return null;
  return {
    message: truncateCodePoints(message, MAX_MESSAGE_CHARS, "…"),
    code: typeof code === "string" ? code : typeof status === "string" ? status : undefined,
    param: typeof param === "string" ? param : undefined,
  };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

/**
 * The pause that a `Retry-After` header asks for, in ms, a day at most: seconds or a date. Null when there is none.
 * Rule: HTTP-2.
 */
export function retryAfterMs(headers: Headers, nowMs: number): number | null {
  const value = headers.get("retry-after")?.trim();
  if (!value) return null;
  if (/^\d+$/.test(value)) return Math.min(Number(value) * 1000, LONGEST_RETRY_AFTER_MS);
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.min(Math.max(0, date - nowMs), LONGEST_RETRY_AFTER_MS);
}
