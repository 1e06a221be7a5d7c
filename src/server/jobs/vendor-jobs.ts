import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { findFile } from "../../domain/files/files.ts";
import type { FileRecord } from "../../domain/ports/files.ts";
import type { ApiDeps } from "../deps.ts";

/** The errors of a request that makes a job, whichever API it comes through. */
export const CREATION_ERRORS: readonly ServiceErrorCode[] = [
  "BATCH_IMAGE_GROUP_DISABLED",
  "BATCH_IMAGE_DISABLED",
  "REALTIME_INVALID_ARGUMENT",
  "REALTIME_MODEL_NOT_FOUND",
  "JOB_FILE_UNUSABLE",
  "JOB_LIMIT_REACHED",
  "UNSUPPORTED_MEDIA_TYPE",
  "REQUEST_TOO_LARGE",
  "INVALID_JSON",
  "BATCH_IMAGE_SETTLEMENT_PRICING_MISSING",
  "BATCH_IMAGE_NO_ACCOUNT_AVAILABLE",
  "BATCH_IMAGE_QUEUE_FAILED",
];

/**
 * Returns the file of a key whose lines are the input of a job, by its name, id or URI. `param` is the field that names it.
 * Throws `JOB_FILE_UNUSABLE` when the key has no such file, and when it is empty.
 */
export async function usableFile(
  { stores, clock }: Pick<ApiDeps, "stores" | "clock">,
  keyId: string,
  name: string,
  param: string,
): Promise<FileRecord> {
  const file = await findFile(stores.read, keyId, name, clock.nowMs());
  const refused = (why: string) => new ImgbatchError("JOB_FILE_UNUSABLE", `${param}: ${why}`, { param });
  if (file === null) throw refused("must be the name of a file that was uploaded with this key");
  if (file.sizeBytes === 0) throw refused("the file is empty");
  return file;
}
