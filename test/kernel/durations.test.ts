import { expect, it } from "vitest";
import { formatDuration } from "../../src/kernel/durations.ts";

it("a duration for people has one unit, and is never negative", () => {
  const durations = [-5, 0, 850, 59_000, 119_000, 720_000, 11_100_000, 172_800_000];
  expect(durations.map(formatDuration)).toEqual([
    "0 ms",
    "0 ms",
    "850 ms",
    "59 s",
    "119 s",
    "12 min",
    "3 h",
    "2 d",
  ]);
});
