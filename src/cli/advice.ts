import type { ErrorCode } from "../contract/errors.ts";

const AGAIN = "run the same command again: it goes on where it stopped, and nothing is paid twice";
const KEY = "give a key in IMGBATCH_API_KEY or with --api-key-file, and check --base-url";
const NEW = "add --new to generate again with a fresh key";

/** What to do after an error, for people. */
const ADVICE: Partial<Record<ErrorCode, string>> = {
  INTERNAL: AGAIN,
  NETWORK: AGAIN,
  BAD_RESPONSE: "check --base-url; if it is right, run the same command again",
  SUBMISSION_UNKNOWN: AGAIN,
  INTERNAL_ERROR: AGAIN,
  RATE_LIMITED: AGAIN,
  BATCH_IMAGE_DOWNLOAD_LIMITED: AGAIN,
  BATCH_IMAGE_NO_ACCOUNT_AVAILABLE: AGAIN,
  BATCH_IMAGE_QUEUE_FAILED: AGAIN,
  INTERRUPTED: AGAIN,
  TERMINATED: AGAIN,
  TIMEOUT: "imgbatch wait, or the same command again",
  BATCH_IMAGE_NOT_READY: "imgbatch wait",
  API_KEY_REQUIRED: KEY,
  INVALID_API_KEY: KEY,
  API_KEY_DISABLED: KEY,
  BATCH_IMAGE_IDEMPOTENCY_CONFLICT: NEW,
  BATCH_IMAGE_OUTPUT_DELETED: NEW,
  BATCH_IMAGE_NOT_FOUND: "check the id and the key: a batch is only seen by the key that made it",
  BATCH_IMAGE_INVALID_MODEL: "imgbatch models lists what this key can use",
  BATCH_IMAGE_INSUFFICIENT_BALANCE: "top up the account, or submit fewer images",
  COST_LIMIT: "raise --max-cost, or submit fewer images",
  SAVE_FAILED:
    "free the disk or fix the permission, then run the same command again: only what is missing is fetched",
  VERIFY_FAILED: "run the same command again: only what is missing or damaged is fetched",
  DIRECTORY_IN_USE: "wait until the other one has ended, then run the same command again",
  INVALID_INPUT: "fix the lines above and run the same command again",
};

export function adviceFor(code: ErrorCode): string | null {
  return ADVICE[code] ?? null;
}
