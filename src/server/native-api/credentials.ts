import type { ServiceErrorCode } from "../../contract/errors.ts";
import type { Credential } from "../operation.ts";
import { authenticateNative } from "./authenticate.ts";

const errors: readonly ServiceErrorCode[] = [
  "API_KEY_REQUIRED",
  "INVALID_API_KEY",
  "API_KEY_DISABLED",
  "RATE_LIMITED",
  "REALTIME_GROUP_NOT_NATIVE",
];

export const headerKey: Credential = {
  schemes: ["apiKey", "headerKey"],
  authenticate: authenticateNative,
  errors,
};

export const headerOrQueryKey: Credential = { ...headerKey, schemes: [...headerKey.schemes, "queryKey"] };
