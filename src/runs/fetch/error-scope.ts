import { type ErrorCode, errorEntry, ImgbatchError } from "../../contract/errors.ts";
import type { ExitName } from "../../contract/exit-codes.ts";
import { isOutOfCapacity, mayPass } from "../../http/retries.ts";

const OF_ALL_EXITS: readonly ExitName[] = ["auth", "money"];
const OF_ALL: readonly ErrorCode[] = ["SAVE_FAILED", "BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_OUTPUT_DELETED"];

/**
 * Returns an error that concerns one image only. Throws any other: after a full disk, a wrong key, deleted outputs, an
 * interruption or a bug, fetching more images makes no sense.
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
  // A service that finds a damaged image while sending can only break off.
  "NETWORK",
];

/**
 * Whether the images may be fetched one by one after this error of their ZIP: it is refused (too large, an image lost, no
 * such path), breaks off, or is unusable. An overloaded service is not asked for more.
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
