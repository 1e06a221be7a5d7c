import { clockTime } from "../kernel/durations.ts";
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

export function isWaitingCode(code: string): code is WaitingCode {
  return Object.hasOwn(WAITING_CODES, code);
}

/** Describes a waiting: `waiting for google: too many requests, until 14:32:10`. */
export function waitingText(waiting: { code: string; message: string; untilMs: number | null }): string {
  const { code, message, untilMs } = waiting;
  // Messages name the provider, and some of them do it twice.
  const reason = message.replace(/^([^:]+): \1 /, "$1: ").replace(/\.$/, "");
  const isNamed = isWaitingCode(code) && code !== "PROVIDER_NOT_CONFIGURED";
  return `waiting${isNamed ? " for" : ":"} ${reason}${untilMs === null ? "" : `, until ${clockTime(untilMs)}`}`;
}
