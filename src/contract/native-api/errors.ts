import type { ErrorCode, ImgbatchError } from "../errors.ts";
import { NATIVE_DETAILS, type NativeErrorBody, type NativeStatus } from "./generate-content.ts";

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
const STATUSES_OF_CODES: { [code in ErrorCode]?: NativeStatus } = { FILE_NAME_TAKEN: "ALREADY_EXISTS" };

/** The `status` that belongs to an HTTP status. */
export function nativeStatus(httpStatus: number): NativeStatus {
  return STATUSES[httpStatus] ?? (httpStatus < 500 ? "INVALID_ARGUMENT" : "INTERNAL");
}

/** The JSON body of an error of the native API. */
export function nativeErrorBody({
  code,
  message,
  param,
  httpStatus,
  retryAfterMs,
}: ImgbatchError): NativeErrorBody {
  const details: { "@type": string }[] = [];
  const add = (type: string, facts: object) => details.push({ "@type": type, ...facts });
  if (httpStatus === 400) {
    add(NATIVE_DETAILS.badRequest, { fieldViolations: [{ field: param ?? "body", description: message }] });
  }
  if (retryAfterMs !== undefined) {
    add(NATIVE_DETAILS.retryInfo, { retryDelay: `${Math.ceil(retryAfterMs / 1000)}s` });
  }
  add(NATIVE_DETAILS.errorInfo, { reason: code, domain: "imgbatch" });
  const status = STATUSES_OF_CODES[code] ?? nativeStatus(httpStatus);
  return { error: { code: httpStatus, message, status, details } };
}
