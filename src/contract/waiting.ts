import type { EXIT_CODES } from "./exit-codes.ts";

/** Why a batch cannot go on now: the codes of `waiting`, and the exit of a command that does not wait any longer. */
export const WAITING_CODES = {
  PROVIDER_NOT_CONFIGURED: "temporary",
  PROVIDER_CREDENTIAL: "auth",
  PROVIDER_FORBIDDEN: "auth",
  PROVIDER_BILLING: "money",
  PROVIDER_MODEL_MISSING: "temporary",
  PROVIDER_RATE_LIMITED: "temporary",
  PROVIDER_UNREACHABLE: "temporary",
  PROVIDER_FAILING: "temporary",
} as const satisfies Record<string, keyof typeof EXIT_CODES>;

export type WaitingCode = keyof typeof WAITING_CODES;
