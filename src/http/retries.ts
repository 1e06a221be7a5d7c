import { ImgbatchError } from "../contract/errors.ts";
import { LONGEST_PAUSE_MS } from "../contract/waiting.ts";
import type { AnswerHeaders } from "./transport.ts";

/** When a request is sent again, and how often. */
export const RETRY_POLICY = {
  /** Answers with these statuses may be different a moment later. 500 is missing: it is a fault, not an overload. */
  statuses: [429, 502, 503, 504],
  maxRetries: 3,
  backoff: { baseMs: 500, capMs: 20_000 },
  /** The longest pause, in ms, that a server may ask for. When it asks for a longer one, the error is thrown at once. */
  longestPauseMs: 120_000,
};

/** A pool without a usable token has no capacity, and asking again makes it worse. Services report it by this text alone. */
const NO_CAPACITY = /\ball\b.*\btokens?\b.*\b(disabled|cooling down|locked|expired)\b/is;

export function isOutOfCapacity(error: Pick<ImgbatchError, "message">): boolean {
  return NO_CAPACITY.test(error.message);
}

/** Whether the same request may succeed later without anything being changed. */
export function mayPass(error: unknown): error is ImgbatchError {
  if (!(error instanceof ImgbatchError) || isOutOfCapacity(error)) return false;
  return error.code === "NETWORK" || RETRY_POLICY.statuses.includes(error.httpStatus);
}

type Headers = Pick<AnswerHeaders, "get">;

/** The time at which an answer was sent by the clock of its sender, which may differ from ours; `nowMs` if it names none. */
export function sentAtMs(headers: Headers, nowMs: number): number {
  const date = Date.parse(headers.get("date") ?? "");
  return Number.isNaN(date) ? nowMs : date;
}

/** A weekday and a month, as in each of the three forms of a date (RFC 9110, section 5.6.7). A bare number is no date. */
const DATE = /^(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? .*[a-z]{3}/i;

/**
 * The pause that a `Retry-After` header (RFC 9110, section 10.2.3) asks for, in ms, a day at most: seconds, of which the
 * fraction is rounded up and the unit `s` may follow, or a date. Null for anything else.
 */
export function retryAfterMs(headers: Headers, nowMs: number): number | null {
  const value = headers.get("retry-after")?.trim();
  if (!value) return null;
  const [, seconds] = /^(\d+(?:\.\d*)?|\.\d+)\s*s?$/i.exec(value) ?? [];
  if (seconds !== undefined) return Math.min(Math.ceil(Number(seconds)) * 1000, LONGEST_PAUSE_MS);
  const date = DATE.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(date) ? null : Math.min(Math.max(0, date - sentAtMs(headers, nowMs)), LONGEST_PAUSE_MS);
}
