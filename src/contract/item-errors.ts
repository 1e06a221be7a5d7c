/** Why an item has no image: the codes that `error.code` of an item can hold. */
export const ITEM_ERROR_CODES = [
  "PROVIDER_ITEM_FAILED",
  "SAFETY_BLOCKED",
  "INVALID_ARGUMENT",
  "PROVIDER_RATE_LIMITED",
  "PROVIDER_TIMEOUT",
  "EMPTY_IMAGE_OUTPUT",
  "INVALID_IMAGE_OUTPUT",
  "RESULT_MISSING",
  "CANCELLED",
] as const;
export type ItemErrorCode = (typeof ITEM_ERROR_CODES)[number];
export type ErrorSource = "provider" | "service";

export interface ItemError {
  code: ItemErrorCode;
  message: string;
  source: ErrorSource;
}
