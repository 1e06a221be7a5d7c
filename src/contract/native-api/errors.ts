import type { ErrorCode, ImgbatchError } from "../errors.ts";
import type { NativeErrorBody, NativeStatus } from "./generate-content.ts";

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
export const RPC_CODES: Record<NativeStatus, number> = {
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
};

/** The JSON body of an error of the native API. */
export function nativeErrorBody({
  code,
  message,
  param,
  httpStatus,
  retryAfterMs,
  because,
}: ImgbatchError): NativeErrorBody {
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
