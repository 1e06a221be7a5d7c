import { type ErrorCode, errorEntry, type ImgbatchError, isErrorCode } from "../../contract/errors.ts";
import type { ExitName } from "../../contract/exit-codes.ts";
import { isRefusalCode } from "../../contract/item-errors.ts";
import { isOutOfCapacity } from "../../http/retries.ts";
import type { ResultLine } from "../directory/results-file.ts";

/** The `source` of an error that this program found, not the service. */
export const CLIENT = "client";

/** Errors of an image that has not failed although its batch has ended: it may still come, or was deleted. */
const UNDECIDED: readonly string[] = [
  "BATCH_IMAGE_NOT_READY",
  "BATCH_IMAGE_OUTPUT_DELETED",
  "BATCH_IMAGE_NOT_FOUND",
] satisfies ErrorCode[];

type Outcome = Pick<ResultLine, "status" | "error">;

/** Whether the service made an image that could not be fetched. It is paid for. */
function isUndelivered({ status, error }: Outcome): boolean {
  return status === "success" && error !== undefined;
}

/** Whether an image is missing although it has not failed. Making it again would pay for it twice. */
export function isMissing({ status, error }: Outcome): boolean {
  if (error === undefined) return false;
  const isUndecided = error.source === CLIENT && UNDECIDED.includes(error.code);
  return isUndelivered({ status, error }) || isUndecided || error.code === "REALTIME_OUTCOME_UNKNOWN";
}

/** The statuses after which the same request may succeed later. */
const PASSING_STATUSES: readonly number[] = [408, 425, 429, 502, 503, 504];

/**
 * Whether a missing image is lost for good: it was made and paid for, or may have been, but is lost, damaged or deleted.
 * After a temporary error it may still come.
 */
export function isLost(line: Outcome): boolean {
  const { error } = line;
  if (error === undefined || !isMissing(line)) return false;
  const code = codeOf(error.code);
  if (isGone(code)) return true;
  const isPassing = code === "NETWORK" || PASSING_STATUSES.includes(errorEntry(code).httpStatus);
  return isUndelivered(line) && !isPassing && code !== "BATCH_IMAGE_NOT_READY" && !isOutOfCapacity(error);
}

/** Whether the image is missing and will never come. A retry makes such images again. */
export function isFailed(line: Pick<ResultLine, "status" | "error" | "files">): boolean {
  return line.files.length === 0 && !isMissing(line);
}

/** Whether an image failed because its prompt was refused. */
export function isRefused({ error }: Pick<ResultLine, "error">): boolean {
  return error !== undefined && isRefusalCode(error.code);
}

/** Whether an image is here, with all its files. */
export function isHere({ files, error }: Pick<ResultLine, "error" | "files">): boolean {
  return files.length > 0 && error === undefined;
}

/** Returns the error for the results of an image that the service has and that could not be fetched. */
export function undelivered({ code, message, requestId }: ImgbatchError): ResultLine["error"] {
  const isOurs = code === "VERIFY_FAILED" || code === "NETWORK" || code === "BAD_RESPONSE";
  const facts = requestId === undefined ? {} : { request_id: requestId };
  return { code, message, source: isOurs ? CLIENT : "service", ...facts };
}

/**
 * Returns the exit and error code for missing images; null when none is missing. Wrong bytes come first, then images that
 * may come later, then images that are gone for good.
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

const GONE: readonly string[] = [
  "BATCH_IMAGE_OUTPUT_DELETED",
  "BATCH_IMAGE_NOT_FOUND",
  "REALTIME_OUTCOME_UNKNOWN",
] satisfies ErrorCode[];

/** Whether an error means that the image is not to be had any more. */
export function isGone(code: string | undefined): boolean {
  return code !== undefined && GONE.includes(code);
}

/** Whether an image is missing whose batch the service does not know: another service may have made it, or still make it. */
export function isUnknownHere(line: Outcome): boolean {
  return isMissing(line) && line.error?.code === "BATCH_IMAGE_NOT_FOUND";
}

function codeOf(code: string | undefined): ErrorCode {
  return code !== undefined && isErrorCode(code) ? code : "BAD_RESPONSE";
}
