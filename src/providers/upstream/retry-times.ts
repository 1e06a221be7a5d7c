import { retryAfterMs } from "../../http/retry-after.ts";
import { parseDuration } from "../../kernel/durations.ts";
import type { UpstreamHeaders } from "./connections.ts";
import { ownMatches } from "./words.ts";

/** Where an upstream may announce when to come back. */
export interface Announced {
  headers: UpstreamHeaders;
  /** `RetryInfo.retryDelay`, such as `37s` or `3.957525076s`. */
  delays: readonly string[];
  message: string;
  /** The caller's texts in the request: an announcement that repeats them counts for nothing. */
  asked: string;
  /** A limit per day is used up. */
  isPerDay: boolean;
}

/** `Please try again in 1m30s.`, `Please retry in 36.962849995s.`, `resets in ~30 seconds`. */
const IN_WORDS =
  /\b(?:try again|retry|resets?) (?:in|after) ~?(\d{1,9}(?:\.\d{1,12})?) ?(milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d)((?:\d{1,9}(?:\.\d{1,12})?(?:ms|[smhd]))*)/gi;

/** Returns the longest announced pause in ms; null when none is announced. */
export function announcedMs(announced: Announced, nowMs: number): number | null {
  const { headers, delays, message, asked, isPerDay } = announced;
  const inHeader = Number(headers.get("retry-after-ms")?.trim() || Number.NaN);
  const inWords = ownMatches(message, IN_WORDS, asked).map(([, count = "", unit = "", rest = ""]) =>
    parseDuration(`${count}${shortUnit(unit)}${rest.toLowerCase()}`),
  );
  const pauses = [
    retryAfterMs(headers, nowMs),
    inHeader,
    ...delays.map(parseDuration),
    ...inWords,
    isPerDay ? untilPacificMidnightMs(nowMs) : null,
  ].filter((pause) => pause !== null && Number.isFinite(pause) && pause >= 0) as number[];
  return pauses.length === 0 ? null : Math.ceil(Math.max(...pauses));
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
