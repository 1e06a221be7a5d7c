import type { ErrorCode } from "../contract/errors.ts";

const AGAIN = "run the same command again: it goes on where it stopped, and nothing is paid twice";
const KEY = "give a key in IMGBATCH_API_KEY or with --api-key-file, and check --base-url";
const NEW = "add --new to generate again with a fresh key";

/** After an error that says that no upstream account is usable. */
export const NO_CAPACITY_ADVICE =
  "the service has no capacity now, and asking again at once makes it worse: wait some minutes, then run the same command again";

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
  DATA_DAMAGED:
    "stop the service and put a backup of the data directory in place; `imgbatch admin check` verifies it",
  COST_LIMIT: "raise --max-cost, or submit fewer images",
  STORAGE_FAILED: "look after the disk, then start again: what was accepted is kept, and goes on",
  SAVE_FAILED:
    "free the disk or fix the permission, then run the same command again: only what is missing is fetched",
  VERIFY_FAILED: "run the same command again: only what is missing or damaged is fetched",
  DIRECTORY_IN_USE: "wait until the other one has ended, then run the same command again",
  INVALID_INPUT: "fix the lines above and run the same command again",
};

const NOTHING_PAID = "fix that and run the same command again; nothing was made";
const ANOTHER =
  "run the same command again; an attempt whose answer was lost may have been billed, and there is no key to find it by";
const LATER =
  "wait a while, then run the same command again; with fewer --jobs or a lower --rpm where there are many";
const LISTED = "imgbatch models --realtime lists what this key can use";

/** The same after a command whose requests are billed each time. */
const PAID_AGAIN: Partial<Record<ErrorCode, string>> = {
  INTERNAL: ANOTHER,
  NETWORK: ANOTHER,
  INTERNAL_ERROR: ANOTHER,
  REALTIME_PROVIDER_FAILED: ANOTHER,
  REALTIME_PROVIDER_UNREACHABLE: ANOTHER,
  REALTIME_TIMEOUT: ANOTHER,
  INTERRUPTED: ANOTHER,
  TERMINATED: ANOTHER,
  TIMEOUT: "allow more time with --timeout, or leave it out",
  RATE_LIMITED: LATER,
  REALTIME_PROVIDER_LIMITED: LATER,
  REALTIME_PROVIDER_OVERLOADED: LATER,
  REALTIME_NO_PROVIDER: LATER,
  REALTIME_STOPPING: LATER,
  REALTIME_MODEL_NOT_FOUND: LISTED,
  REALTIME_INVALID_ARGUMENT: NOTHING_PAID,
  REQUEST_TOO_LARGE: "use smaller or fewer --image files",
  REALTIME_INSUFFICIENT_BALANCE: "top up the account",
  BATCH_IMAGE_INSUFFICIENT_BALANCE: "top up the account",
  IMAGE_REFUSED: "change the prompt or the input images; the same request would be refused again",
  NO_IMAGES: "say more clearly that an image is wanted, and of what",
  SAVE_FAILED: "free the disk or fix the permission before you make the image again: that is billed again",
};

/** `paysAgain`: the advice for a command whose requests cannot be told from earlier ones. */
export function adviceFor(code: ErrorCode, { paysAgain = false } = {}): string | null {
  return (paysAgain ? PAID_AGAIN[code] : undefined) ?? ADVICE[code] ?? null;
}
