import { describe, expect, it } from "vitest";
import {
  afterResult,
  type HealthRecord,
  healthy,
  lateResult,
} from "../../../src/domain/health/provider-health.ts";
import type { Trouble } from "../../../src/domain/ports/image-provider.ts";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const NOW = 1_800_000_000_000;
const WELL = healthy({ provider: "p", model: "m" });

const event = (
  trouble: Trouble,
  itemId = "1",
  retryAfterMs: number | null = null,
): Parameters<typeof afterResult>[1] => ({
  type: "trouble",
  trouble,
  message: trouble,
  itemId,
  retryAfterMs,
});

/** Has the same trouble `count` times, each after the end of the last pause. Returns the length of each pause. */
function pauses(trouble: Trouble, count: number): (number | null)[] {
  let record: HealthRecord = WELL;
  let nowMs = NOW;
  const lengths: (number | null)[] = [];
  for (let i = 0; i < count; i++) {
    record = afterResult(record, event(trouble, String(i)), nowMs);
    lengths.push(record.untilMs === null ? null : record.untilMs - nowMs);
    nowMs = record.untilMs ?? nowMs;
  }
  return lengths;
}

describe("the health of a provider", () => {
  it("[HEALTH-1] a refused key disables it", () => {
    expect(afterResult(WELL, event("credential"), NOW)).toMatchObject({ state: "disabled", untilMs: null });
  });

  it("[HEALTH-1] a missing payment pauses it for 10 minutes, twice as long each time, up to 6 hours", () => {
    const minutes = pauses("billing", 8).map((ms) => (ms ?? 0) / MINUTE);
    expect(minutes).toEqual([10, 20, 40, 80, 160, 320, 360, 360]);
  });

  it("[HEALTH-1] three refusals of permission in three hours disable it", () => {
    const first = afterResult(WELL, event("forbidden"), NOW);
    expect(first).toMatchObject({ state: "cooling", untilMs: NOW + 10 * MINUTE });
    const second = afterResult(first, event("forbidden"), NOW + HOUR);
    expect(afterResult(second, event("forbidden"), NOW + 2 * HOUR)).toMatchObject({ state: "disabled" });
    expect(afterResult(second, event("forbidden"), NOW + 3 * HOUR)).toMatchObject({ state: "cooling" });
  });

  it("[HEALTH-1] a success between them does not forget the refusals of permission", () => {
    let record = WELL;
    for (const hour of [0, 1]) {
      record = afterResult(record, event("forbidden"), NOW + hour * HOUR);
      record = afterResult(record, { type: "success" }, NOW + hour * HOUR + 11 * MINUTE);
      expect(record.state).toBe("ok");
    }
    expect(afterResult(record, event("forbidden"), NOW + 2 * HOUR).state).toBe("disabled");
  });

  it("[HEALTH-1] an unknown model pauses for an hour", () => {
    expect(pauses("no-model", 2)).toEqual([HOUR, HOUR]);
  });

  it("[HEALTH-1] too many requests pause until the announced time, else 5 seconds, doubling to a minute", () => {
    expect(pauses("limited", 6)).toEqual([5, 10, 20, 40, 60, 60].map((seconds) => seconds * SECOND));
    const announced = afterResult(WELL, event("limited", "1", 2 * HOUR), NOW);
    expect(announced.untilMs).toBe(NOW + 2 * HOUR);
  });

  it.each(["unreachable", "failing", "ambiguous"] as const)(
    "five items in a row that end with %s pause it for 30 seconds, doubling to 5 minutes",
    (trouble) => {
      let record = WELL;
      for (const item of ["1", "2", "2", "3", "3", "4"])
        record = afterResult(record, event(trouble, item), NOW);
      expect(record.state).toBe("ok");
      record = afterResult(record, event(trouble, "5"), NOW);
      expect(record).toMatchObject({ state: "cooling", untilMs: NOW + 30 * SECOND });
      const seconds: number[] = [];
      for (let i = 0; i < 5; i++) {
        const nowMs = record.untilMs ?? 0;
        record = afterResult(record, event(trouble, "again"), nowMs);
        seconds.push(((record.untilMs ?? 0) - nowMs) / SECOND);
      }
      expect(seconds).toEqual([60, 120, 240, 300, 300]);
    },
  );

  it("a success ends the row, and the next pause is short again", () => {
    let record = WELL;
    for (const item of ["1", "2", "3", "4"]) record = afterResult(record, event("failing", item), NOW);
    record = afterResult(record, { type: "success" }, NOW);
    record = afterResult(record, event("failing", "5"), NOW);
    expect(record.state).toBe("ok");
  });

  it("a result of a request from before the pause neither ends nor lengthens it, unless it announces more", () => {
    const paused = afterResult(WELL, event("limited"), NOW);
    expect(lateResult(paused, { type: "success" }, NOW + 1)).toBe(paused);
    expect(lateResult(paused, event("limited"), NOW + 1)).toBe(paused);
    expect(lateResult(paused, event("limited", "1", MINUTE), NOW + 1).untilMs).toBe(NOW + 1 + MINUTE);
    expect(lateResult(paused, event("credential"), NOW + 1).state).toBe("disabled");
  });

  it("[HEALTH-7] one failure right after a pause for too many requests does not pause it again", () => {
    const limited = afterResult(WELL, event("limited"), NOW);
    const failed = afterResult(limited, event("failing"), NOW + 5 * SECOND);
    expect(failed.untilMs).toBe(NOW + 5 * SECOND);
    expect(afterResult(failed, { type: "success" }, NOW + 6 * SECOND).state).toBe("ok");
  });

  it("failures of requests from before a recovery count like others", () => {
    let record: HealthRecord = WELL;
    for (const item of ["1", "2", "3", "4", "5"]) record = lateResult(record, event("failing", item), NOW);
    expect(record).toMatchObject({ state: "cooling", untilMs: NOW + 30 * SECOND });
  });

  it("an announced pause of nothing is none", () => {
    expect(afterResult(WELL, event("limited", "1", 0), NOW).untilMs).toBe(NOW + 5 * SECOND);
  });

  it("a new time never shortens an old one", () => {
    const long = afterResult(WELL, event("limited", "1", HOUR), NOW);
    expect(afterResult(long, event("limited", "1", SECOND), NOW + MINUTE).untilMs).toBe(NOW + HOUR);
    expect(lateResult(long, event("limited", "1", SECOND), NOW + MINUTE)).toBe(long);
  });
});
