import { retryAfterMs, sentAtMs } from "../../http/retries.ts";
import type { AnswerHeaders } from "../../http/transport.ts";
import { parseDuration } from "../../kernel/durations.ts";
import { ownMatches } from "./words.ts";

/** Where an upstream may announce when to come back. */
export interface Announced {
  headers: Pick<AnswerHeaders, "get">;
  /** `RetryInfo.retryDelay`, such as `37s` or `3.957525076s`. */
  delays: readonly string[];
  message: string;
  /** The caller's texts in the request: an announcement that repeats them counts for nothing. */
  asked: string;
  /** The limit that is used up: one per day, or a shorter one. Null when the answer is about something else. */
  limit: "short" | "per-day" | null;
}

/** The vendor also sends the delay of its limits per minute with a limit per day: no delay of a day is that short. */
const SHORTEST_OF_DAY_MS = 60_000;
/** The limits whose headers tell what is left, and when they begin anew (OpenAI's documentation of rate limits). */
const HEADER_LIMITS = ["requests", "tokens"];

/** `Please try again in 1m30s.`, `Please retry in 36.962849995s.`, `resets in ~30 seconds`. */
const IN_WORDS =
  /\b(?:try again|retry|resets?) (?:in|after) ~?(\d{1,9}(?:\.\d{1,12})?) ?(milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d)((?:\d{1,9}(?:\.\d{1,12})?(?:ms|[smhd]))*)/gi;

/**
 * Returns the longest announced pause in ms; null when none is announced. Without one, a limit lasts until it begins anew: by
 * the headers about it, else a limit per day until the next day.
 */
export function announcedMs(announced: Announced, nowMs: number): number | null {
  const { headers, delays, message, asked, limit } = announced;
  const inHeader = Number(headers.get("retry-after-ms")?.trim() || Number.NaN);
  const inWords = ownMatches(message, IN_WORDS, asked).map(([, count = "", unit = "", rest = ""]) =>
    parseDuration(`${count}${shortUnit(unit)}${rest.toLowerCase()}`),
  );
  const shortest = limit === "per-day" ? SHORTEST_OF_DAY_MS : 0;
  const inBody = [...delays.map(parseDuration), ...inWords].filter((pause) => (pause ?? 0) >= shortest);
  const told = longest([retryAfterMs(headers, nowMs), inHeader, ...inBody]);
  if (told !== null || limit === null) return told;
  const reset = longest(HEADER_LIMITS.map((name) => resetMs(headers, name)));
  return reset ?? (limit === "per-day" ? untilPacificMidnightMs(sentAtMs(headers, nowMs)) : null);
}

function longest(pauses: readonly (number | null)[]): number | null {
  const known = pauses.filter((pause): pause is number => pause !== null && pause >= 0);
  return known.length === 0 ? null : Math.ceil(Math.max(...known));
}

/** When a limit of which nothing is left begins anew. */
function resetMs(headers: Pick<AnswerHeaders, "get">, name: string): number | null {
  const left = headers.get(`x-ratelimit-remaining-${name}`)?.trim() ?? "0";
  const reset = headers.get(`x-ratelimit-reset-${name}`)?.trim();
  return Number(left) > 0 || !reset ? null : parseDuration(reset);
}

function shortUnit(unit: string): string {
  const lower = unit.toLowerCase();
  return lower.startsWith("ms") || lower.startsWith("milli") ? "ms" : lower.charAt(0);
}

const HOUR_MS = 3_600_000;
/** Made when it is needed, which is rare: it takes longer to make than the rest of these files to load. */
let pacific: Intl.DateTimeFormat | undefined;

/** Limits per day of the native API start again at midnight Pacific time (vendor's documentation of rate limits). */
function untilPacificMidnightMs(nowMs: number): number {
  const leftMs = 24 * HOUR_MS - pacificTimeMs(nowMs);
  // On the two days a year on which clocks change, the first guess is an hour too early or too late.
  const missedBy = pacificTimeMs(nowMs + leftMs);
  return missedBy > 12 * HOUR_MS ? leftMs + 24 * HOUR_MS - missedBy : leftMs - missedBy;
}

/** The time of day there, in ms. */
function pacificTimeMs(atMs: number): number {
  pacific ??= new Intl.DateTimeFormat("en-US", {
    timeZone: "America/Los_Angeles",
    hourCycle: "h23",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  });
  const parts = Object.fromEntries(
    pacific.formatToParts(atMs).map(({ type, value }) => [type, Number(value)]),
  );
  const { hour = 0, minute = 0, second = 0 } = parts;
  return ((hour * 60 + minute) * 60 + second) * 1000 + (atMs % 1000);
}
