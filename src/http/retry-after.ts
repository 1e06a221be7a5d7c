import { LONGEST_PAUSE_MS } from "../contract/waiting.ts";
import type { AnswerHeaders } from "./send.ts";

/**
 * The pause that a `Retry-After` header (RFC 9110, section 10.2.3) asks for, in ms: seconds or a date, a day at most.
 * Null when there is none that can be read.
 */
export function retryAfterMs(headers: Pick<AnswerHeaders, "get">, nowMs: number): number | null {
  const value = headers.get("retry-after")?.trim();
  if (!value) return null;
  if (/^\d+$/.test(value)) return Math.min(Number(value) * 1000, LONGEST_PAUSE_MS);
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.min(Math.max(0, date - nowMs), LONGEST_PAUSE_MS);
}
