import { LONGEST_PAUSE_MS } from "../contract/waiting.ts";
import type { AnswerHeaders } from "./send.ts";

type Headers = Pick<AnswerHeaders, "get">;

/** The time at which an answer was sent by the clock of its sender, which may differ from ours; `nowMs` if it names none. */
export function sentAtMs(headers: Headers, nowMs: number): number {
  const date = Date.parse(headers.get("date") ?? "");
  return Number.isNaN(date) ? nowMs : date;
}

/**
 * The pause that a `Retry-After` header (RFC 9110, section 10.2.3) asks for, in ms: seconds or a date, a day at most.
 * Null when there is none that can be read.
 */
export function retryAfterMs(headers: Headers, nowMs: number): number | null {
  const value = headers.get("retry-after")?.trim();
  if (!value) return null;
  if (/^\d+$/.test(value)) return Math.min(Number(value) * 1000, LONGEST_PAUSE_MS);
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.min(Math.max(0, date - sentAtMs(headers, nowMs)), LONGEST_PAUSE_MS);
}
