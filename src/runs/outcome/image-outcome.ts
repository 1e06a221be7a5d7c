import { type ErrorCode, errorEntry, type ImgbatchError, isErrorCode } from "../../contract/errors.ts";
import type { ExitName } from "../../contract/exit-codes.ts";
import { isOutOfCapacity } from "../../http/retry-policy.ts";
import type { ResultLine } from "../directory/results-file.ts";

/** The `source` of an error that was found here, not by the service. */
export const CLIENT = "client";

/** Why an image whose batch has ended may still come, or never will without having failed. */
const UNDECIDED: readonly string[] = [
  "BATCH_IMAGE_NOT_READY",
  "BATCH_IMAGE_OUTPUT_DELETED",
] satisfies ErrorCode[];

type Outcome = Pick<ResultLine, "status" | "error">;

/** Whether the service made an image that could not be had: it is paid for. */
export function isUndelivered({ status, error }: Outcome): boolean {
  return status === "success" && error !== undefined;
}

/** Whether an image is not here although it has not failed: making it anew would pay for it twice. */
export function isMissing({ status, error }: Outcome): boolean {
  if (error === undefined) return false;
  return isUndelivered({ status, error }) || (error.source === CLIENT && UNDECIDED.includes(error.code));
}

/** Errors after which the same request may succeed later, by the statuses that services answer then. */
const PASSING_STATUSES: readonly number[] = [408, 425, 429, 502, 503, 504];

/**
 * Whether an image that is not here will not come any more, as far as one can know: it was made, and is paid for, but
 * is lost, damaged or deleted. After a passing trouble it may still come.
 */
export function isLost(line: Outcome): boolean {
  const { error } = line;
  if (error === undefined || !isMissing(line)) return false;
  const code = codeOf(error.code);
  if (isGone(code)) return true;
  const isPassing = code === "NETWORK" || PASSING_STATUSES.includes(errorEntry(code).httpStatus);
  return isUndelivered(line) && !isPassing && code !== "BATCH_IMAGE_NOT_READY" && !isOutOfCapacity(error);
}

/** Whether there is no image and will be none: what a retry is for. */
export function isFailed(line: Pick<ResultLine, "status" | "error" | "files">): boolean {
  return line.files.length === 0 && !isMissing(line);
}

/** Whether an image is here, with all its files. */
export function isHere({ files, error }: Pick<ResultLine, "error" | "files">): boolean {
  return files.length > 0 && error === undefined;
}

/** The error of an image that the service has and that could not be had, for the results. */
export function undelivered({ code, message, requestId }: ImgbatchError): ResultLine["error"] {
  const isOurs = code === "VERIFY_FAILED" || code === "NETWORK" || code === "BAD_RESPONSE";
  const facts = requestId === undefined ? {} : { request_id: requestId };
  return { code, message, source: isOurs ? CLIENT : "service", ...facts };
}

/**
 * What missing images mean for the process that asked for them; null when none is. Bytes that are wrong come before
 * what may come later, and that before what is gone for good.
 */
export function judgeMissing(lines: readonly ResultLine[]): { exit: ExitName; code: ErrorCode } | null {
  const codes = lines.filter(isMissing).map(({ error }) => codeOf(error?.code));
  const wrong = codes.find((code) => errorEntry(code).exit === "saving");
  const later = codes.find((code) => errorEntry(code).exit !== "saving" && !isGone(code));
  const [first] = codes;
  if (wrong !== undefined) return { exit: "saving", code: wrong };
  if (later !== undefined) return { exit: "temporary", code: later };
  return first === undefined ? null : { exit: "gone", code: first };
}

function isGone(code: ErrorCode): boolean {
  return code === "BATCH_IMAGE_OUTPUT_DELETED";
}

function codeOf(code: string | undefined): ErrorCode {
  return code !== undefined && isErrorCode(code) ? code : "BAD_RESPONSE";
}
