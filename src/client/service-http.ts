import {
  type ErrorCode,
  errorEntry,
  ImgbatchError,
  NATIVE_DETAILS,
  SERVICE_ERRORS,
  type ServiceErrorCode,
} from "../contract/errors.ts";
import { REQUEST_ID_HEADER, routes } from "../contract/routes.ts";
import { isWaitingCode, LONGEST_PAUSE_MS } from "../contract/waiting.ts";
import { createHttp, type Http } from "../http/http.ts";
import { retryAfterMs } from "../http/retries.ts";
import type { Answer } from "../http/transport.ts";
import { hideUsedKeys, hideUsedKeysIn } from "../kernel/hide-keys.ts";
import { isObject } from "../kernel/json.ts";
import { truncateCodePoints } from "../kernel/text.ts";

type HttpOptions = Parameters<typeof createHttp>[0];
type ReadError = HttpOptions["readError"];
type ErrorAnswer = ReturnType<ReadError>;

interface ServiceHttpOptions extends Omit<HttpOptions, "readError"> {
  /** Puts another error in the place of one of the service. Default: none. */
  explain?: (error: ImgbatchError) => ImgbatchError;
}

/** Paths of the service, which people copy into the base URL from the settings of other tools or from their browser. */
const OWN_PATH = /(?:\/openai)?\/(?:v\d\w*|console)(?:\/.*)?$/;

/** Sends requests to an image service. Errors have the codes of this program's catalogue. */
export function createServiceHttp(options: ServiceHttpOptions): Http {
  const { baseUrl } = options;
  return createHttp({
    ...options,
    readError: (...args) => {
      const read = readErrorResponse(...args);
      const answer = { ...read, error: options.explain?.(read.error) ?? read.error };
      if (answer.error.code !== "NOT_FOUND" || !OWN_PATH.test(baseUrl)) return answer;
      const right = baseUrl.replace(OWN_PATH, "");
      const message = `No imgbatch API at ${baseUrl}; try ${right}`;
      const advice = `run the same command with --base-url ${right}`;
      return { ...answer, error: new ImgbatchError("NOT_FOUND", message, { ...answer.error, advice }) };
    },
  });
}

const MAX_MESSAGE_CHARS = 2000;

/** The `domain` of the codes of this catalogue. */
const ERROR_DOMAIN = "imgbatch";

/** The catalogue's code for a status whose body has no code, or one that is not ours. Any other status becomes `HTTP_<status>`. */
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

/**
 * Reads an answer outside 2xx of a service of this kind: a document of the batch API, of the native API, or of a gateway
 * before it. `text` is the body. The keys that this process sends are removed from it.
 */
function readErrorResponse(
  response: Answer,
  text: string,
  { method, path }: Parameters<ReadError>[2],
  nowMs: number,
): ErrorAnswer {
  const body = readErrorBody(text);
  const requestId = response.headers.get(REQUEST_ID_HEADER);
  const facts = {
    httpStatus: response.status,
    requestId: requestId === null ? undefined : hideUsedKeys(requestId),
    retryAfterMs: body?.retryDelayMs ?? retryAfterMs(response.headers, nowMs) ?? undefined,
    param: body?.param,
    because: body?.because,
  };
  if (body?.code !== undefined && Object.hasOwn(SERVICE_ERRORS, body.code))
    return answer(new ImgbatchError(body.code as ServiceErrorCode, body.message, facts));
  const isNative = path.startsWith(routes.nativeModels) && body?.isNative === true;
  const code = isNative ? nativeCodeOf(response.status) : codeOf(response.status, method);
  return answer(new ImgbatchError(code, hideUsedKeys(describe(response, body)), facts));
}

/** The service itself refused when its code fits the status. A gateway, or a fault half-way, leaves open what happened. */
function answer(error: ImgbatchError): ErrorAnswer {
  const isNamed = Object.hasOwn(SERVICE_ERRORS, error.code) && error.code !== "INTERNAL_ERROR";
  return { error, isRefusal: isNamed && errorEntry(error.code).httpStatus === error.httpStatus };
}

function nativeCodeOf(status: number): ErrorCode {
  return NATIVE_CODE_BY_STATUS[status] ?? codeOf(status, "POST");
}

function codeOf(status: number, method: string): ErrorCode {
  // Only a request that makes something can conflict. For a GET, 409 means that the result does not exist yet.
  if (status === 409 && method === "GET") return "BATCH_IMAGE_NOT_READY";
  if (status < 400) return "BAD_RESPONSE";
  return CODE_BY_STATUS[status] ?? `HTTP_${status}`;
}

function describe(response: Answer, body: ForeignError | null): string {
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
  /** The reason why no upstream could make the image. */
  because: string | undefined;
  retryDelayMs: number | undefined;
  /** Whether it has the form of the native API: `code` is a number, and `status` a word. */
  isNative: boolean;
}

/** Reads the usual forms: `{error: {code, message}}`, `{error: "…"}`, and bare `{message}` or `{detail}`. */
function readErrorBody(json: string): ForeignError | null {
  let body: unknown;
  try {
    body = hideUsedKeysIn(JSON.parse(json));
  } catch {
    return null;
  }
  if (!isObject(body)) return null;
  const error = isObject(body.error)
    ? body.error
    : { ...body, message: body.error ?? body.message ?? body.detail };
  const { message } = error;
  if (typeof message !== "string" || message === "") return null;
  return {
    message: truncateCodePoints(message, MAX_MESSAGE_CHARS, "…"),
    code: codeIn(error),
    param: text(error.param) ?? fieldIn(error.details),
    because: waitingIn(error.details),
    retryDelayMs: delayIn(error.details),
    isNative: isObject(body.error) && typeof error.code === "number",
  };
}

/** The code of this kind of service where the error has one, else its own code, else its status. */
function codeIn(error: Record<string, unknown>): string | undefined {
  return text(ownInfo(error.details)?.reason) ?? text(error.code) ?? text(error.status);
}

function ownInfo(details: unknown): Record<string, unknown> | undefined {
  const info = detail(details, NATIVE_DETAILS.errorInfo);
  return info?.domain === ERROR_DOMAIN ? info : undefined;
}

function waitingIn(details: unknown): string | undefined {
  const metadata = ownInfo(details)?.metadata;
  const waiting = isObject(metadata) ? text(metadata.waiting) : undefined;
  return waiting !== undefined && isWaitingCode(waiting) ? waiting : undefined;
}

/** The first field that a native error names. */
function fieldIn(details: unknown): string | undefined {
  const violations = detail(details, NATIVE_DETAILS.badRequest)?.fieldViolations;
  const first: unknown = Array.isArray(violations) ? violations[0] : undefined;
  return isObject(first) ? text(first.field) : undefined;
}

/** The pause that a native error asks for, a day at most: `"2s"`, fractions allowed. */
function delayIn(details: unknown): number | undefined {
  const delay = text(detail(details, NATIVE_DETAILS.retryInfo)?.retryDelay);
  const [, seconds] = /^(\d+(?:\.\d+)?)s$/.exec(delay ?? "") ?? [];
  return seconds === undefined ? undefined : Math.min(Math.ceil(Number(seconds) * 1000), LONGEST_PAUSE_MS);
}

function detail(details: unknown, type: string): Record<string, unknown> | undefined {
  const list: unknown[] = Array.isArray(details) ? details : [];
  return list.filter(isObject).find((entry) => entry["@type"] === type);
}

function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
