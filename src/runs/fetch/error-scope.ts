import { type ErrorCode, errorEntry, ImgbatchError } from "../../contract/errors.ts";
import type { ExitName } from "../../contract/exit-codes.ts";
import { isOutOfCapacity, mayPass } from "../../http/retry-policy.ts";

const OF_ALL_EXITS: readonly ExitName[] = ["auth", "money"];
const OF_ALL: readonly ErrorCode[] = ["SAVE_FAILED", "BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_OUTPUT_DELETED"];

/**
 * Passes an error that is about one image only. Throws any other: a full disk, a wrong key, deleted outputs, an
 * interruption, a bug; after those asking for more makes no sense.
 */
export function requireOfOne(error: unknown, signal: AbortSignal | undefined): ImgbatchError {
  if (signal?.aborted || !(error instanceof ImgbatchError)) throw error;
  const concernsAll =
    OF_ALL.includes(error.code) ||
    OF_ALL_EXITS.includes(errorEntry(error.code).exit) ||
    isOutOfCapacity(error);
  if (concernsAll) throw error;
  return error;
}

const OF_THE_ZIP: readonly ErrorCode[] = [
  "VERIFY_FAILED",
  "BATCH_IMAGE_RESULT_MISSING",
  "NOT_FOUND",
  "BAD_RESPONSE",
  "INTERNAL_ERROR",
  // A service that meets a damaged image while it sends can only break off.
  "NETWORK",
];

/**
 * Whether the images may be had one by one when their ZIP could not: it is refused (too large, one of them lost, no such
 * path), breaks off, or cannot be used. A service that is overloaded is not asked for more.
 */
export function isOfTheZip(error: unknown): error is ImgbatchError {
  if (!(error instanceof ImgbatchError)) return false;
  const { code } = error;
  if (code === "NETWORK") return true;
  return (OF_THE_ZIP.includes(code) || errorEntry(code).exit === "usage") && !isLoad(error);
}

function isLoad(error: ImgbatchError): boolean {
  return mayPass(error) || isOutOfCapacity(error);
}
