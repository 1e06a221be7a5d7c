import type { ErrorCode } from "../../contract/errors.ts";

const NOTHING_PAID = "fix that and run the same command again; nothing was made";
const BILLED = "; an attempt whose response was lost may have been billed";
const ANOTHER = `run the same command again${BILLED}`;
const LATER = "wait a while, then run the same command again";
/** Where there were too many requests. */
export const SLOWER = "; with --file also use fewer --jobs or a lower --rpm";

/** The advice after an error of a command whose every request is billed, where it differs from the usual advice. */
export const PAID_AGAIN: Partial<Record<ErrorCode, string>> = {
  INTERNAL: ANOTHER,
  NETWORK: ANOTHER,
  INTERNAL_ERROR: ANOTHER,
  HTTP_502: ANOTHER,
  HTTP_504: ANOTHER,
  REALTIME_PROVIDER_FAILED: ANOTHER,
  REALTIME_PROVIDER_UNREACHABLE: ANOTHER,
  REALTIME_TIMEOUT: ANOTHER,
  INTERRUPTED: ANOTHER,
  TERMINATED: ANOTHER,
  TIMEOUT: "allow more time with --timeout, or leave it out",
  RATE_LIMITED: `${LATER}${SLOWER}`,
  HTTP_503: `${LATER}${SLOWER}`,
  REALTIME_PROVIDER_PAUSES: LATER,
  REALTIME_PROVIDER_LIMITED: `${LATER}${SLOWER}`,
  REALTIME_PROVIDER_OVERLOADED: `${LATER}${SLOWER}`,
  REALTIME_NO_PROVIDER: LATER,
  REALTIME_STOPPING: LATER,
  REALTIME_INVALID_ARGUMENT: NOTHING_PAID,
  NOT_FOUND: "check --base-url and --model: the service has no such path",
  REQUEST_TOO_LARGE: "use smaller or fewer --image files",
  REALTIME_IDEMPOTENCY_CONFLICT: "run the same command again: it sends a new request, which is billed",
  REALTIME_INSUFFICIENT_BALANCE: "top up the account",
  BATCH_IMAGE_INSUFFICIENT_BALANCE: "top up the account",
  IMAGE_REFUSED: "change the prompt or the input images; the same request would be refused again",
  NO_IMAGES: "state in the prompt that you want an image, and what it shows",
  SAVE_FAILED: "free disk space or fix the permission before you make the image again, which is billed again",
};

/** What the advice to run a command again adds after this error, whose requests are billed. */
export function whenBilled(code: ErrorCode): string {
  const advice = PAID_AGAIN[code] ?? "";
  return [BILLED, SLOWER].find((end) => advice.endsWith(end)) ?? "";
}
