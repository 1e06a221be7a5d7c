import { type ErrorCode, type ExitName, errorEntry, ImgbatchError, isErrorCode } from "../contract/errors.ts";
import { type ItemErrorCode, isRefusalCode } from "../contract/statuses.ts";
import { isOutOfCapacity } from "../http/retries.ts";

/** The `source` of an error that this program found, not the service. */
export const CLIENT = "client";

/** The facts of a line of the results that decide how its image stands. */
interface Outcome {
  status: string;
  files: readonly unknown[];
  error?: { code: string; message: string; source: string | null } | undefined;
}

/**
 * How an image stands. `here`: all its files are. `failed`: it will never come, and a retry makes it. `refused`: the same
 * because of its prompt. `unknown`: the answer of a paid request was lost, so it may be paid, and is made again only when a
 * person asks for it. `later`: it has not failed, and may still come; to make it again would pay for it twice. `lost`: it was
 * made and paid for, but is gone, damaged or deleted.
 */
type Standing = "here" | "failed" | "refused" | "unknown" | "later" | "lost";

/** Errors of an image that has not failed although its batch has ended: it may still come, or was deleted. */
const UNDECIDED: readonly string[] = [
  "BATCH_IMAGE_NOT_READY",
  "BATCH_IMAGE_OUTPUT_DELETED",
  "BATCH_IMAGE_NOT_FOUND",
] satisfies ErrorCode[];
/** Errors of an image that is not to be had any more. */
const GONE: readonly string[] = ["BATCH_IMAGE_OUTPUT_DELETED", "BATCH_IMAGE_NOT_FOUND"] satisfies ErrorCode[];
/** Errors of an image of which a paid request has no known outcome. */
const UNKNOWN: readonly string[] = [
  "OUTCOME_UNKNOWN" satisfies ItemErrorCode,
  "REALTIME_OUTCOME_UNKNOWN" satisfies ErrorCode,
];
/** Errors of a request of its own that was refused because of its prompt, besides those of items. */
const REFUSED: readonly string[] = ["IMAGE_REFUSED", "REALTIME_INVALID_ARGUMENT"] satisfies ErrorCode[];
/** The statuses after which the same request may succeed later. */
const PASSING_STATUSES: readonly number[] = [408, 425, 429, 502, 503, 504];

function standingOf({ status, error, files }: Outcome): Standing {
  if (error === undefined) return files.length > 0 ? "here" : status === "pending" ? "later" : "failed";
  const { code, source } = error;
  const isUndecided = source === CLIENT && UNDECIDED.includes(code);
  if (status === "success" || isUndecided) return mayStillCome(error) ? "later" : "lost";
  if (files.length > 0) return "here";
  if (UNKNOWN.includes(code)) return "unknown";
  return isRefusalCode(code) || REFUSED.includes(code) ? "refused" : "failed";
}

function mayStillCome(error: { code: string; message: string }): boolean {
  const code = codeOf(error.code);
  if (GONE.includes(code)) return false;
  const isPassing =
    code === "NETWORK" || code === "SERVICE_GONE" || PASSING_STATUSES.includes(errorEntry(code).httpStatus);
  return isPassing || code === "BATCH_IMAGE_NOT_READY" || isOutOfCapacity(error);
}

/** Whether an image stands in one of these ways. */
export function stands(line: Outcome, ...standings: readonly Standing[]): boolean {
  return standings.includes(standingOf(line));
}

/** Whether the service does not know the batch of a lost image: another service may have made it, or still make it. */
export function isUnknownHere(line: Outcome): boolean {
  return line.error?.code === "BATCH_IMAGE_NOT_FOUND" && stands(line, "lost");
}

/** The exits for images that have not failed and are not here, the first that applies: damaged, late, gone for good. */
const MISSING_EXITS = ["saving", "temporary", "gone"] as const;

/** Returns the exit and the error code for images that are late or lost, with the first such image; null when there is none. */
export function judgeMissing<Line extends Outcome>(
  lines: readonly Line[],
): { exit: ExitName; code: ErrorCode; line: Line } | null {
  const missing = lines.filter((line) => stands(line, "later", "lost"));
  for (const exit of MISSING_EXITS) {
    const line = missing.find((each) => missingExit(each) === exit);
    if (line !== undefined) return { exit, code: codeOf(line.error?.code), line };
  }
  return null;
}

function missingExit({ error }: Outcome): (typeof MISSING_EXITS)[number] {
  const code = codeOf(error?.code);
  if (errorEntry(code).exit === "saving") return "saving";
  return GONE.includes(code) ? "gone" : "temporary";
}

function codeOf(code: string | undefined): ErrorCode {
  return code !== undefined && isErrorCode(code) ? code : "BAD_RESPONSE";
}

/**
 * A way to get images that are not here. `fetch`: the same command again, or `download`. `retry` also makes failed images
 * again, `retryLost` also lost and unknown ones, `retryHere` also those whose batches the service does not know. `edit`: change the
 * prompts that were refused.
 */
interface Repair {
  kind: "fetch" | "retry" | "retryLost" | "retryHere" | "edit";
  /** The images that it makes, which are paid. For `edit`, those whose prompts have to change. */
  images: number;
}

/**
 * Returns the ways to get the images that are not here, the cheapest first. Each one does what those before it do, and
 * more. Empty if nothing can help, or all images are here.
 */
export function repairsOf(lines: readonly Outcome[]): Repair[] {
  const { failed, refused, unknown, lost: gone } = countStandings(lines);
  const lost = gone + unknown;
  const missing = lines.filter((line) => stands(line, "later", "lost"));
  const mayCome = missing.some((line) => missingExit(line) !== "gone");
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

function countStandings(lines: readonly Outcome[]): Record<Standing, number> {
  const counts = { here: 0, failed: 0, refused: 0, unknown: 0, later: 0, lost: 0 };
  for (const line of lines) counts[standingOf(line)]++;
  return counts;
}

export interface Counts {
  total: number;
  success: number;
  failed: number;
  /** How many of the failed ones may be paid, because the answer to a paid request was lost. Default: 0. */
  unknown?: number;
}

interface ImageCounts extends Required<Counts> {
  /** Late or lost. */
  missing: number;
}

export function countImages({ lines }: { lines: readonly Outcome[] }): ImageCounts {
  const { here, failed, refused, unknown, later, lost } = countStandings(lines);
  const all = { total: lines.length, success: here, failed: failed + refused + unknown };
  return { ...all, unknown, missing: later + lost };
}

/** Returns the exit of an ended run. */
export function verdict(
  counts: Counts,
  statuses: readonly string[],
  allowance: Allowance = { count: 0 },
): Extract<ExitName, "ok" | "someFailed" | "noImages"> {
  // That not one image was made is not known then.
  if (counts.success === 0) return (counts.unknown ?? 0) > 0 ? "someFailed" : "noImages";
  if (statuses.some((status) => status === "failed" || status === "cancelled")) return "someFailed";
  return isAllowed(counts, allowance) ? "ok" : "someFailed";
}

/** Whether so many failed images are allowed. */
export function isAllowed(
  { failed, total }: Pick<Counts, "failed" | "total">,
  allowance: Allowance,
): boolean {
  return failed <= ("count" in allowance ? allowance.count : allowance.share * total);
}

/** What an error of fetching concerns: one image, all images of its batch, or the whole run. */
type ErrorScope = "image" | "batch" | "run";

const BATCH_CODES: readonly ErrorCode[] = ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_OUTPUT_DELETED"];
const RUN_CODES: readonly ErrorCode[] = ["SAVE_FAILED", "SERVICE_GONE"];
const RUN_EXITS: readonly ExitName[] = ["auth", "money"];

/**
 * Returns what an error concerns. After a full disk, a wrong key, an interruption or a fault of this program, fetching more
 * makes no sense at all, nor from a service that has ended with its command; after deleted outputs or a lack of capacity,
 * only other batches are worth a try.
 */
export function scopeOf(error: unknown, { signal }: { signal?: AbortSignal | undefined }): ErrorScope {
  if (signal?.aborted || !(error instanceof ImgbatchError)) return "run";
  if (RUN_CODES.includes(error.code) || RUN_EXITS.includes(errorEntry(error.code).exit)) return "run";
  return BATCH_CODES.includes(error.code) || isOutOfCapacity(error) ? "batch" : "image";
}
