import type { ServiceErrorCode } from "../../contract/errors.ts";

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
