import { type ErrorCode, errorEntry, type ImgbatchError, isErrorCode } from "../contract/errors.ts";
import type { ExitName } from "../contract/exit-codes.ts";
import { isRefusalCode } from "../contract/statuses.ts";
import { isOutOfCapacity } from "../http/retries.ts";
import type { ResultLine } from "./directory/results.ts";

/** The `source` of an error that this program found, not the service. */
export const CLIENT = "client";

/** Errors of an image that has not failed although its batch has ended: it may still come, or was deleted. */
const UNDECIDED: readonly string[] = [
  "BATCH_IMAGE_NOT_READY",
  "BATCH_IMAGE_OUTPUT_DELETED",
  "BATCH_IMAGE_NOT_FOUND",
] satisfies ErrorCode[];

type Outcome = Pick<ResultLine, "status" | "error" | "files">;

/**
 * How an image of an ended batch stands. `here`: all its files are. `failed`: it will never come, and a retry makes it.
 * `refused`: the same because of its prompt. `later`: it has not failed, and may still come; to make it again would pay
 * for it twice. `lost`: it was made and paid for, or may have been, but is gone, damaged or deleted.
 */
type Standing = "here" | "failed" | "refused" | "later" | "lost";

/** The statuses after which the same request may succeed later. */
const PASSING_STATUSES: readonly number[] = [408, 425, 429, 502, 503, 504];

export function standingOf({ status, error, files }: Outcome): Standing {
  // The service made an image that could not be fetched.
  const isUndelivered = status === "success" && error !== undefined;
  const isUndecided = error?.source === CLIENT && UNDECIDED.includes(error.code);
  if (isUndelivered || isUndecided || error?.code === "REALTIME_OUTCOME_UNKNOWN") {
    const code = codeOf(error.code);
    if (isGone(code)) return "lost";
    const isPassing = code === "NETWORK" || PASSING_STATUSES.includes(errorEntry(code).httpStatus);
    const mayCome = isPassing || code === "BATCH_IMAGE_NOT_READY" || isOutOfCapacity(error);
    return isUndelivered && !mayCome ? "lost" : "later";
  }
  if (files.length > 0) return "here";
  return error !== undefined && isRefusalCode(error.code) ? "refused" : "failed";
}

/** Whether an image will never come. `retry.jsonl` holds these. */
export function isFailed(line: Outcome): boolean {
  return ["failed", "refused"].includes(standingOf(line));
}

/** Whether an image is missing although it has not failed. */
export function isMissing(line: Outcome): boolean {
  return ["later", "lost"].includes(standingOf(line));
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
function isGone(code: string | undefined): boolean {
  return code !== undefined && GONE.includes(code);
}

/** Whether an image is missing whose batch the service does not know: another service may have made it, or still make it. */
export function isUnknownHere(line: Outcome): boolean {
  return isMissing(line) && line.error?.code === "BATCH_IMAGE_NOT_FOUND";
}

function codeOf(code: string | undefined): ErrorCode {
  return code !== undefined && isErrorCode(code) ? code : "BAD_RESPONSE";
}

/**
 * A way to get images that are not here. `fetch`: the same command again, or `download`. `retry` also makes failed images
 * again, `retryLost` also lost ones, `retryHere` also those whose batches the service does not know. `edit`: change the
 * prompts that were refused.
 */
export interface Repair {
  kind: "fetch" | "retry" | "retryLost" | "retryHere" | "edit";
  /** The images that it makes, which are paid. For `edit`, those whose prompts have to change. */
  images: number;
}

/**
 * Returns the ways to get the images that are not here, the cheapest first. Each one does what those before it do, and
 * more. Empty if nothing can help, or all images are here.
 */
export function repairsOf(lines: readonly Outcome[]): Repair[] {
  const { failed, refused, lost } = countStandings(lines);
  const missing = lines.filter(isMissing);
  const mayCome = missing.some(({ error }) => !isGone(error?.code));
  const repairs: Repair[] = [];
  if (mayCome) repairs.push({ kind: "fetch", images: 0 });
  // A run that another service has begun goes on here only on request.
  if (missing.some(isUnknownHere)) return [...repairs, { kind: "retryHere", images: failed + lost }];
  if (failed > 0) repairs.push({ kind: "retry", images: failed });
  if (lost > 0) repairs.push({ kind: "retryLost", images: failed + lost });
  if (repairs.length === 0 && refused > 0) repairs.push({ kind: "edit", images: refused });
  return repairs;
}

/** The most failed images with which a run still counts as successful: a number, or a share of all. */
export type Allowance = { count: number } | { share: number };

/** Reads `3` or `5%`; null when it is neither. */
export function parseAllowance(text: string): Allowance | null {
  const [, digits, percent] = /^(\d+(?:\.\d+)?)(%?)$/.exec(text.trim()) ?? [];
  const value = Number(digits);
  if (digits === undefined || (percent === "%" ? value > 100 : !Number.isInteger(value))) return null;
  return percent === "%" ? { share: value / 100 } : { count: value };
}

function countStandings(lines: readonly Outcome[]): Record<Standing, number> {
  const counts = { here: 0, failed: 0, refused: 0, later: 0, lost: 0 };
  for (const line of lines) counts[standingOf(line)]++;
  return counts;
}

export interface Counts {
  total: number;
  success: number;
  failed: number;
}

export interface ImageCounts extends Counts {
  /** Missing although they have not failed: see `isMissing`. */
  missing: number;
}

export function countImages({ lines }: { lines: readonly Outcome[] }): ImageCounts {
  const { here, failed, refused, later, lost } = countStandings(lines);
  return { total: lines.length, success: here, failed: failed + refused, missing: later + lost };
}

/** Returns the exit of an ended run. */
export function verdict(
  counts: Counts,
  statuses: readonly string[],
  allowance: Allowance = { count: 0 },
): Extract<ExitName, "ok" | "someFailed" | "noImages"> {
  if (counts.success === 0) return "noImages";
  if (statuses.some((status) => status === "failed" || status === "cancelled")) return "someFailed";
  const allowed = "count" in allowance ? allowance.count : allowance.share * counts.total;
  return counts.failed > allowed ? "someFailed" : "ok";
}
