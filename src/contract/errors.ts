import type { NativeBody } from "./native-api.ts";
import { WAITING_CODES, type WaitingCode } from "./waiting.ts";

/** The `type` of an error body, by which a client can decide without knowing the code. */
type ErrorType =
  | "authentication_error"
  | "permission_error"
  | "insufficient_balance_error"
  | "not_found_error"
  | "conflict_error"
  | "rate_limit_error"
  | "api_error"
  | "invalid_request_error";

interface ErrorEntry {
  httpStatus: number;
  /** The client's exit code when this error ends a command. */
  exit: ExitName;
  /** Whether the same request may succeed a moment later. */
  retryable?: true;
  /** The default message. */
  message: string;
}

const e = (httpStatus: number, exit: ExitName, message: string): ErrorEntry => ({
  httpStatus,
  exit,
  message,
});
const retryable = (httpStatus: number, message: string): ErrorEntry => ({
  ...e(httpStatus, "temporary", message),
  retryable: true,
});

/** Every error that the service returns, in one table: code, HTTP status, exit code, default message. */
export const SERVICE_ERRORS = {
  API_KEY_REQUIRED: e(401, "auth", "An API key is required: send it as `Authorization: Bearer <key>`."),
  INVALID_API_KEY: e(401, "auth", "This API key is not known here."),
  API_KEY_DISABLED: e(401, "auth", "This API key is disabled or has expired."),
  OWNER_ONLY: e(403, "auth", "Only the key in `credentials.json` of the service may see this."),
  BATCH_IMAGE_DISABLED: e(404, "auth", "Batch image generation is switched off on this service."),
  BATCH_IMAGE_GROUP_DISABLED: e(403, "auth", "The group of this key may not make batches."),
  BATCH_IMAGE_NO_ACCOUNT_AVAILABLE: retryable(502, "Nothing can make images for this model now."),
  BATCH_IMAGE_SETTLEMENT_PRICING_MISSING: e(400, "usage", "This model has no batch price."),
  BATCH_IMAGE_INVALID_MODEL: e(400, "usage", "model: name a model from the batch model list."),
  BATCH_IMAGE_INVALID_ITEMS: e(400, "usage", "The request has invalid items or fields."),
  BATCH_IMAGE_DUPLICATE_CUSTOM_ID: e(400, "usage", "Two items have the same custom_id."),
  BATCH_IMAGE_PROMPT_TOO_LONG: e(400, "usage", "A prompt is too long."),
  BATCH_IMAGE_TOO_MANY_OUTPUT_IMAGES: e(400, "usage", "The batch asks for too many images."),
  BATCH_IMAGE_INVALID_REFERENCE_IMAGE: e(400, "usage", "A reference image is invalid."),
  BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES: e(400, "usage", "An item has too many reference images."),
  BATCH_IMAGE_REFERENCE_IMAGES_TOO_LARGE: e(400, "usage", "The reference images are too large together."),
  BATCH_IMAGE_INSUFFICIENT_BALANCE: e(402, "money", "The balance is too low to hold the cost of this batch."),
  BATCH_IMAGE_IDEMPOTENCY_CONFLICT: e(409, "conflict", "This Idempotency-Key was used with another request."),
  BATCH_IMAGE_PROVIDER_SUBMIT_FAILED: retryable(502, "The upstream did not take the batch."),
  BATCH_IMAGE_QUEUE_FAILED: retryable(502, "The workers are not running."),
  BATCH_IMAGE_NOT_FOUND: e(404, "gone", "No such batch."),
  BATCH_IMAGE_ITEM_NOT_FOUND: e(404, "gone", "No such item in this batch."),
  BATCH_IMAGE_INVALID_QUERY: e(400, "usage", "A query parameter is invalid."),
  BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE: e(400, "usage", "image_index: the item has no such image."),
  BATCH_IMAGE_ZIP_TOO_MANY_ITEMS: e(400, "usage", "The ZIP would hold more items than max_items."),
  BATCH_IMAGE_DOWNLOAD_TOO_LARGE: e(400, "usage", "The ZIP would be too large."),
  BATCH_IMAGE_NOT_READY: e(409, "temporary", "The batch is not ready for download yet."),
  BATCH_IMAGE_OUTPUT_DELETED: e(410, "gone", "The outputs of this batch were deleted."),
  BATCH_IMAGE_OUTPUT_DELETE_NOT_READY: e(409, "conflict", "Outputs can be deleted when the batch has ended."),
  BATCH_IMAGE_RECORD_DELETE_NOT_READY: e(
    409,
    "conflict",
    "A record can be deleted when the batch has ended.",
  ),
  BATCH_IMAGE_ITEM_FAILED: e(409, "noImages", "This item has no image."),
  BATCH_IMAGE_RESULT_MISSING: e(500, "temporary", "A stored image is missing or damaged."),
  BATCH_IMAGE_CANCEL_FAILED: retryable(502, "The upstream refused the cancellation."),
  BATCH_IMAGE_NOT_IN_JOBS: e(409, "usage", "The images of this batch are not made by jobs of an upstream."),
  BATCH_IMAGE_DOWNLOAD_LIMITED: retryable(429, "Too many downloads at once."),
  JOB_FILE_UNUSABLE: e(400, "usage", "The input file of the job cannot be used."),
  JOB_NOT_ENDED: e(400, "temporary", "The job has not ended yet."),
  JOB_NOT_FOUND: e(404, "gone", "No such batch job."),
  JOB_LIMIT_REACHED: retryable(
    429,
    "This key has 100 batch jobs that have not ended; wait for one of them, or cancel it.",
  ),
  REALTIME_INVALID_ARGUMENT: e(400, "usage", "The request has an invalid field."),
  REALTIME_GROUP_NOT_NATIVE: e(400, "auth", "The group of this key may not use the real-time API."),
  REALTIME_MODEL_NOT_FOUND: e(404, "usage", "The model does not exist for this key."),
  REALTIME_REFUSED: e(400, "noImages", "The prompt or its picture was refused."),
  REALTIME_MAY_BE_PAID: e(
    424,
    "temporary",
    "The request may have been paid, and gave no image that can be used.",
  ),
  REALTIME_NO_IMAGE: e(400, "noImages", "The model made no image."),
  REALTIME_OUTPUT_NOT_FOUND: e(404, "gone", "No such image: it was kept for an hour."),
  REALTIME_INTERACTION_NOT_FOUND: e(404, "gone", "No such response or interaction of this key."),
  REALTIME_PREVIOUS_NOT_FOUND: e(400, "usage", "The response to continue is not known to this key."),
  REALTIME_INSUFFICIENT_BALANCE: e(402, "money", "The balance is too low for this image."),
  REALTIME_NO_PROVIDER: retryable(503, "Nothing can make images for this model now."),
  REALTIME_PROVIDER_PAUSES: retryable(503, "The upstream of this model pauses."),
  REALTIME_PROVIDER_LIMITED: retryable(429, "The upstream takes no more requests now."),
  REALTIME_PROVIDER_FAILED: e(500, "temporary", "The upstream failed."),
  REALTIME_PROVIDER_UNREACHABLE: retryable(502, "The upstream did not answer as it should."),
  REALTIME_PROVIDER_OVERLOADED: retryable(503, "The upstream is overloaded."),
  REALTIME_TIMEOUT: retryable(504, "The image was not made in time."),
  REALTIME_IDEMPOTENCY_CONFLICT: e(409, "conflict", "This Idempotency-Key was used with another request."),
  REALTIME_OUTCOME_UNKNOWN: e(
    409,
    "someFailed",
    "The answer of the upstream was lost; the image may be paid, and is not asked for again.",
  ),
  REALTIME_CANCELLED: e(499, "temporary", "The request was cancelled."),
  REALTIME_STOPPING: retryable(503, "The service is stopping; nothing was made or billed."),
  FILE_NOT_FOUND: e(404, "gone", "No such file of this key."),
  FILE_NAME_TAKEN: e(409, "conflict", "This key has a file of this name."),
  FILE_QUOTA_EXCEEDED: e(429, "temporary", "The files of this key take too much space."),
  FILE_UPLOAD_NOT_FOUND: e(404, "gone", "No such upload: it has ended, or the service was restarted."),
  FILE_UPLOAD_TAKEN_OVER: e(409, "conflict", "Another request has continued this upload."),
  MALFORMED_REQUEST: e(400, "usage", "This is not HTTP as the service speaks it."),
  MISDIRECTED_REQUEST: e(
    421,
    "usage",
    "Host: the service does not go by this name; call it by its address, or set `server.publicUrl` in its configuration to the URL that you call.",
  ),
  REQUEST_TIMEOUT: retryable(408, "The request took too long to arrive."),
  REQUEST_HEADERS_TOO_LARGE: e(431, "usage", "The headers of the request are too large."),
  REQUEST_TOO_LARGE: e(413, "usage", "The request body is too large."),
  UNSUPPORTED_MEDIA_TYPE: e(415, "usage", "Content-Type: send application/json."),
  INVALID_JSON: e(400, "usage", "The body is not valid JSON."),
  METHOD_NOT_ALLOWED: e(405, "usage", "This path does not take this method."),
  NOT_FOUND: e(404, "gone", "There is nothing at this path."),
  RATE_LIMITED: retryable(429, "Too many requests."),
  INTERNAL_ERROR: e(500, "temporary", "Something went wrong on the service's side."),
} as const satisfies Record<string, ErrorEntry>;

/** The errors of a command that does not wait any longer for a provider. */
const WAITING_ERRORS = Object.fromEntries(
  Object.entries(WAITING_CODES).map(([code, exit]) => [code, e(0, exit, "No provider can be asked now.")]),
) as Record<WaitingCode, ErrorEntry>;

/** Errors on the caller's machine; never sent over the wire. */
const LOCAL_ERRORS = {
  INTERNAL: e(0, "internal", "Something went wrong inside imgbatch."),
  MODULE_UNUSABLE: e(0, "internal", "A compiled part does not load on this system."),
  USAGE: e(0, "usage", "The command line is not right."),
  INVALID_INPUT: e(0, "usage", "The input is not right; nothing was sent."),
  INVALID_CONFIG: e(0, "usage", "The configuration is not right."),
  CONSENT_REQUIRED: e(0, "auth", "The configuration file of this directory needs your consent."),
  OUTSIDE_ROOT: e(0, "usage", "The path leads out of the root of this server."),
  COST_LIMIT: e(0, "money", "The run would cost more than --max-cost."),
  DATA_DIRECTORY_IN_USE: e(0, "conflict", "Another process uses this data directory."),
  EARLIER_VERSION: e(0, "conflict", "This was made by a version before 0.1.0, which cannot be read."),
  DIRECTORY_CONFLICT: e(0, "conflict", "This directory belongs to another run."),
  DIRECTORY_IN_USE: e(0, "conflict", "Another process works in this directory."),
  LOCK_CONFLICT: e(0, "conflict", "The lock file cannot be used as it is."),
  PROMPTS_CHANGED: e(0, "conflict", "Prompts have changed since their pictures were made."),
  ORIGINALS_MISSING: e(0, "gone", "Pictures are missing, and what they were made from is not here."),
  FILE_EXISTS: e(0, "conflict", "Another file exists already."),
  ADDRESS_IN_USE: e(0, "conflict", "The port is taken."),
  NETWORK: retryable(0, "The service could not be reached."),
  SERVICE_GONE: e(0, "temporary", "The service of another command has ended."),
  BAD_RESPONSE: e(0, "temporary", "The service sent a response that does not belong to this API."),
  SUBMISSION_UNKNOWN: e(0, "temporary", "It is not known whether the service took the batch."),
  IMAGES_MISSING: e(0, "temporary", "Images of this run are missing here."),
  ITEMS_FAILED: e(0, "someFailed", "Some images failed."),
  NO_IMAGES: e(0, "noImages", "Not one image was made."),
  IMAGE_REFUSED: e(0, "noImages", "The service refused to make this image."),
  STORAGE_FAILED: e(
    0,
    "saving",
    "The data directory cannot be used: its disk fails or is full, or its database is damaged.",
  ),
  SAVE_FAILED: e(0, "saving", "A file could not be saved."),
  VERIFY_FAILED: e(0, "saving", "A downloaded file differs from the service's description."),
  ...WAITING_ERRORS,
  TIMEOUT: e(0, "timeout", "Timed out; the batch goes on."),
  INTERRUPTED: e(0, "interrupted", "Interrupted."),
  TERMINATED: e(0, "terminated", "Terminated."),
} as const satisfies Record<string, ErrorEntry>;

export const ERRORS: Record<ServiceErrorCode | LocalErrorCode, ErrorEntry> = {
  ...SERVICE_ERRORS,
  ...LOCAL_ERRORS,
};

/** The message of `REALTIME_OUTCOME_UNKNOWN` after a second request. */
export const TWO_LOST = "Two requests were sent and no outcome is known; both may be paid.";
/** The end of the message of a failure before which the answer of an equal request was lost. */
export const LOST_BEFORE =
  "The answer of an earlier request for it was lost, and that request may be billed.";

export type ServiceErrorCode = keyof typeof SERVICE_ERRORS;
type LocalErrorCode = keyof typeof LOCAL_ERRORS;
/** The code of a response without a code and a status of the catalogue: `HTTP_418`. */
type StatusCode = `HTTP_${number}`;
export type ErrorCode = ServiceErrorCode | LocalErrorCode | StatusCode;

/** Whether a text is a code of the catalogue, or of an HTTP status alone. */
export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERRORS, code) || /^HTTP_\d{3}$/.test(code);
}

/** The facts of a code; those of its class for an HTTP status alone. */
export function errorEntry(code: ErrorCode): ErrorEntry {
  if (Object.hasOwn(ERRORS, code)) return ERRORS[code as ServiceErrorCode | LocalErrorCode];
  const status = Number(code.slice("HTTP_".length));
  return e(status, exitOfStatus(status), `The service answered HTTP ${status}.`);
}

function exitOfStatus(status: number): ExitName {
  if (status === 401 || status === 403) return "auth";
  if (status === 402) return "money";
  if (status === 404 || status === 410) return "gone";
  if (status === 409) return "conflict";
  if (status === 408 || status === 425 || status === 429 || status >= 500) return "temporary";
  return "usage";
}

/** A word of a command line, and what to type in its place. */
export interface Meant {
  typed: string;
  right: string;
}

export interface ErrorDetails {
  /** The field, parameter or header at fault, when it is one. */
  param?: string | undefined;
  cause?: unknown;
  /** The HTTP status that was received, when it differs from the catalogue's or the code is foreign. */
  httpStatus?: number | undefined;
  /** The service's request id, to quote in a report. */
  requestId?: string | undefined;
  retryAfterMs?: number | undefined;
  /** More than one finding (a line each), as for a prompt file. */
  details?: readonly string[] | undefined;
  /** The next step, where the usual advice for the code does not fit. */
  advice?: string | undefined;
  /** A typed word, and the word that was probably meant: where the command line is known, the advice repeats it so. */
  meant?: Meant | undefined;
  /**
   * Why nothing was made, where that decides the advice: a code of `Waiting`, or the system's code for a connection to the
   * service that could not be made.
   */
  because?: string | undefined;
  mayBePaid?: boolean | undefined;
}

/** The one error class of service, client and command line. Decide by `code`, never by the message. */
export class ImgbatchError extends Error {
  /** From the catalogue (`SERVICE_ERRORS`, `LOCAL_ERRORS`), or from a status that is not in it. */
  readonly code: ErrorCode;
  readonly param: string | undefined;
  readonly httpStatus: number;
  readonly requestId: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly details: readonly string[] | undefined;
  readonly advice: string | undefined;
  readonly meant: Meant | undefined;
  readonly because: string | undefined;
  /** An upstream may have made and billed what was asked for: a library must not ask again by itself. */
  readonly mayBePaid: boolean;

  constructor(code: ErrorCode, message?: string, details: ErrorDetails = {}) {
    super(message ?? errorEntry(code).message, { cause: details.cause });
    this.name = "ImgbatchError";
    this.code = code;
    this.param = details.param;
    this.httpStatus = details.httpStatus ?? errorEntry(code).httpStatus;
    this.requestId = details.requestId;
    this.retryAfterMs = details.retryAfterMs;
    this.details = details.details;
    this.advice = details.advice;
    this.meant = details.meant;
    this.because = details.because;
    this.mayBePaid = details.mayBePaid ?? false;
  }
}

/** The `type` that belongs to an HTTP status. */
export function errorType(httpStatus: number): ErrorType {
  if (httpStatus === 401) return "authentication_error";
  if (httpStatus === 402) return "insufficient_balance_error";
  if (httpStatus === 403) return "permission_error";
  if (httpStatus === 404 || httpStatus === 410) return "not_found_error";
  if (httpStatus === 409) return "conflict_error";
  if (httpStatus === 429) return "rate_limit_error";
  return httpStatus >= 500 ? "api_error" : "invalid_request_error";
}

/** The JSON body of an error of the batch API. */
interface ErrorBody {
  error: { type: ErrorType; code: string; message: string; param?: string };
}

export function errorBody(error: ImgbatchError): ErrorBody {
  const { code, message, param, httpStatus } = error;
  return { error: { type: errorType(httpStatus), code, message, ...(param === undefined ? {} : { param }) } };
}

/** Whether SQLite reports a database file that is damaged or is not a database. */
export function isDatabaseDamage(error: unknown): boolean {
  const code = String((error as { code?: unknown } | null)?.code);
  return code.startsWith("SQLITE_CORRUPT") || code === "SQLITE_NOTADB";
}

/** The types of the entries of `error.details`. */
export const NATIVE_DETAILS = {
  badRequest: "type.googleapis.com/google.rpc.BadRequest",
  retryInfo: "type.googleapis.com/google.rpc.RetryInfo",
  errorInfo: "type.googleapis.com/google.rpc.ErrorInfo",
} as const;

const STATUSES: Record<number, NativeStatus> = {
  401: "UNAUTHENTICATED",
  402: "FAILED_PRECONDITION",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  409: "ABORTED",
  429: "RESOURCE_EXHAUSTED",
  499: "CANCELLED",
  502: "UNAVAILABLE",
  503: "UNAVAILABLE",
  504: "DEADLINE_EXCEEDED",
};

/** Codes whose `status` is not that of their HTTP status. */
const STATUSES_OF_CODES: { [code in ErrorCode]?: NativeStatus } = {
  FILE_NAME_TAKEN: "ALREADY_EXISTS",
  JOB_FILE_UNUSABLE: "FAILED_PRECONDITION",
  JOB_NOT_ENDED: "FAILED_PRECONDITION",
};

/** The `status` that belongs to an HTTP status. */
export function nativeStatus(httpStatus: number): NativeStatus {
  return STATUSES[httpStatus] ?? (httpStatus < 500 ? "INVALID_ARGUMENT" : "INTERNAL");
}

/** The numbers of the statuses, in errors of jobs and of their lines (google.rpc.Code). */
export const RPC_CODES = {
  CANCELLED: 1,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  UNAUTHENTICATED: 16,
} as const;

/** The `status` of a native error. */
type NativeStatus = keyof typeof RPC_CODES;

/** The JSON body of an error of the native API. */
export function nativeErrorBody({
  code,
  message,
  param,
  httpStatus,
  retryAfterMs,
  because,
}: ImgbatchError): NativeBody<"NativeError"> {
  const details: { "@type": string }[] = [];
  const add = (type: string, facts: object) => details.push({ "@type": type, ...facts });
  if (httpStatus === 400) {
    add(NATIVE_DETAILS.badRequest, { fieldViolations: [{ field: param ?? "body", description: message }] });
  }
  if (retryAfterMs !== undefined) {
    add(NATIVE_DETAILS.retryInfo, { retryDelay: `${Math.ceil(retryAfterMs / 1000)}s` });
  }
  const metadata = because === undefined ? {} : { metadata: { waiting: because } };
  add(NATIVE_DETAILS.errorInfo, { reason: code, domain: "imgbatch", ...metadata });
  const status = STATUSES_OF_CODES[code] ?? nativeStatus(httpStatus);
  return { error: { code: httpStatus, message, status, details } };
}

/**
 * The exit codes of the process. Scripts rely on these numbers: within a major version none changes its meaning. The help text and the README are made from this table.
 */
export const EXIT_CODES = {
  ok: { code: 0, meaning: "everything asked for is done; files are on disk and verified", rerun: "-" },
  internal: { code: 1, meaning: "internal error", rerun: "yes" },
  usage: { code: 2, meaning: "usage or invalid input; nothing was sent", rerun: "after fixing" },
  auth: {
    code: 3,
    meaning: "not authenticated or not permitted, or batch images are switched off",
    rerun: "after fixing",
  },
  someFailed: {
    code: 4,
    meaning:
      "finished, some images failed, or a batch was cancelled or failed; `check` or `admin check` found something",
    rerun: "`retry`",
  },
  noImages: { code: 5, meaning: "finished with no usable image", rerun: "look first" },
  conflict: {
    code: 6,
    meaning:
      "conflict: key used with other content, directory of another run or version, data directory in use",
    rerun: "no",
  },
  temporary: {
    code: 7,
    meaning: "temporary: network, 5xx or 429 after the retries, outcome unknown, not ready yet",
    rerun: "yes, the same command",
  },
  money: { code: 8, meaning: "refused for money: cost limit or balance", rerun: "no" },
  saving: {
    code: 9,
    meaning: "the batch is fine, saving it here failed (disk, permission, checksum)",
    rerun: "`download`",
  },
  gone: { code: 10, meaning: "no such batch, or its outputs are gone", rerun: "no" },
  timeout: { code: 124, meaning: "`--timeout` reached; the batch goes on", rerun: "`wait`" },
  interrupted: { code: 130, meaning: "interrupted; the batch goes on", rerun: "the same command" },
  terminated: { code: 143, meaning: "terminated; the batch goes on", rerun: "the same command" },
} as const satisfies Record<string, { code: number; meaning: string; rerun: string }>;

export type ExitName = keyof typeof EXIT_CODES;
