import { describe, expect, it } from "vitest";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { type Announced, announcedMs } from "../../../src/providers/upstream/classify.ts";

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const NOW_MS = Date.UTC(2030, 0, 2, 3, 4, 5);

type Given = Partial<Omit<Announced, "headers">> & { headers?: Record<string, string> };

function pause({ headers = {}, ...given }: Given, nowMs = NOW_MS): number | null {
  const retryAfterMs = announcedMs(
    { delays: [], message: "", asked: "", limit: "short", ...given, headers: new Headers(headers) },
    nowMs,
  );
  return new ProviderError("PROVIDER_RATE_LIMITED", "", { retryAfterMs }).retryAfterMs;
}

describe("the announced pause", () => {
  it.each<[string, Given, number | null]>([
    ["none", {}, null],
    ["a header in seconds", { headers: { "retry-after": "12" } }, 12_000],
    ["a header with a date", { headers: { "retry-after": new Date(NOW_MS + 30_000).toUTCString() } }, 30_000],
    ["a header in decimal seconds", { headers: { "retry-after": "1.5" } }, 2000],
    ["a header with a unit", { headers: { "retry-after": "60s" } }, 60_000],
    ["a header that is neither seconds nor a date", { headers: { "retry-after": "-5" } }, null],
    ["a header with a month alone", { headers: { "retry-after": "May 2031" } }, null],
    ["a header in ms", { headers: { "retry-after-ms": "1250" } }, 1250],
    ["RetryInfo", { delays: ["37s"] }, 37_000],
    ["RetryInfo with a fraction", { delays: ["3.957525076s"] }, 3958],
    ["OpenAI's words", { message: "Rate limit reached. Please try again in 7.66s. Visit us." }, 7660],
    ["words in ms", { message: "Please try again in 20ms." }, 20],
    ["compound words", { message: "Please try again in 1h2m3s." }, 3_723_000],
    ["the vendor's words", { message: "limit: 20\nPlease retry in 36.962849995s." }, 36_963],
    ["long words", { message: "Try again in 5 minutes" }, 300_000],
    ["a reset", { message: "Your rate limit resets in ~30s." }, 30_000],
    [
      "the longest of all",
      {
        headers: { "retry-after": "5", "retry-after-ms": "900" },
        delays: ["2s"],
        message: "try again in 8s",
      },
      8000,
    ],
    [
      "a date by the clock of its sender",
      {
        headers: {
          date: new Date(NOW_MS + HOUR_MS).toUTCString(),
          "retry-after": new Date(NOW_MS + HOUR_MS + 30_000).toUTCString(),
        },
      },
      30_000,
    ],
    [
      "OpenAI's headers, of the limit of which nothing is left",
      {
        headers: {
          "x-ratelimit-remaining-requests": "0",
          "x-ratelimit-reset-requests": "6m0s",
          "x-ratelimit-remaining-tokens": "12",
          "x-ratelimit-reset-tokens": "1h",
        },
      },
      360_000,
    ],
    [
      "no such header where a time is announced",
      { headers: { "retry-after": "3", "x-ratelimit-reset-requests": "6m0s" } },
      3000,
    ],
    [
      "no such header of another trouble",
      { limit: null, headers: { "x-ratelimit-reset-requests": "1s" } },
      null,
    ],
    ["at most a day", { delays: ["999999s"] }, DAY_MS],
    [
      "nonsense",
      {
        headers: { "retry-after": "soon", "retry-after-ms": "-4" },
        delays: ["never"],
        message: "try again later",
      },
      null,
    ],
  ])("is read: %s", (_name, given, expected) => {
    expect(pause(given)).toBe(expected);
  });

  it("of a limit per day ends when it is announced, else at midnight Pacific time", () => {
    // 03:04:05 UTC is 19:04:05 in winter there.
    const untilMidnight = DAY_MS - (19 * HOUR_MS + 4 * 60_000 + 5000);
    expect(pause({ limit: "per-day" })).toBe(untilMidnight);
    expect(pause({ limit: "per-day", delays: ["600s"] })).toBe(600_000);
    expect(pause({ limit: "per-day", delays: ["36000s"] })).toBe(36_000_000);
    expect(pause({ limit: "per-day", headers: { "retry-after": "20" }, delays: ["41s"] })).toBe(20_000);
    // The vendor sends the delay of its limits per minute, too: it says nothing about the day.
    expect(pause({ limit: "per-day", delays: ["41s"], message: "Please retry in 41.2s." })).toBe(
      untilMidnight,
    );
    // The clock of the vendor counts.
    const date = new Date(NOW_MS + HOUR_MS).toUTCString();
    expect(pause({ limit: "per-day", headers: { date } })).toBe(untilMidnight - HOUR_MS);
  });

  it("holds on the days on which clocks change", () => {
    // Clocks go forward on 10 March 2030 and back on 3 November 2030, both at 2 o'clock.
    expect(pause({ limit: "per-day" }, Date.UTC(2030, 2, 10, 8, 30))).toBe(22.5 * HOUR_MS);
    expect(pause({ limit: "per-day" }, Date.UTC(2030, 10, 3, 8, 30))).toBe(23.5 * HOUR_MS);
    expect(pause({ limit: "per-day" }, Date.UTC(2030, 10, 3, 7, 30))).toBe(DAY_MS);
  });

  it("is found quickly in any text", () => {
    expect(pause({ message: "try again in 1".repeat(10_000) })).toBeNull();
    expect(pause({ message: `try again in ${"1m".repeat(50_000)}` })).toBe(DAY_MS);
  });
});

it("in 16 MB of words that a pattern looks for is found in the first of them", () => {
  const message = "try again in 1s. ".repeat(1_000_000);
  expect(pause({ message })).toBe(1000);
  const many = Array.from({ length: 60_000 }, (_, i) => `retry in ${i}s`).join(" ");
  expect(pause({ message: many })).toBeLessThan(60_000_000);
  expect(pause({ delays: Array.from({ length: 200_000 }, () => "3s") })).toBe(3000);
});
