import { describe, expect, it } from "vitest";
import { imagesPerSecond, timeLeftMs } from "../../src/dashboard/state.ts";
import { applied, NOW, viewOf } from "./facts.ts";

describe("the rate", () => {
  it("is the mean of the last full seconds, quiet ones too", () => {
    let state = viewOf([]);
    for (let second = 1; second <= 4; second++) {
      state = applied(
        state,
        { type: "tick", nowMs: NOW + second * 1000 },
        { type: "images", count: 3, atMs: NOW },
      );
    }
    state = applied(state, { type: "tick", nowMs: NOW + 5000 });
    expect(imagesPerSecond(state)).toBe(3);
    state = applied(state, { type: "tick", nowMs: NOW + 9000 });
    expect(imagesPerSecond(state)).toBe(12 / 8);
  });

  it("keeps a minute, survives a clock that goes back, and a long sleep", () => {
    let state = applied(
      viewOf([]),
      { type: "tick", nowMs: NOW + 1000 },
      { type: "images", count: 5, atMs: NOW },
    );
    state = applied(state, { type: "tick", nowMs: NOW - 3_600_000 });
    state = applied(state, { type: "tick", nowMs: NOW + 3_600_000 });
    expect(state.imagesBySecond).toHaveLength(60);
    expect(imagesPerSecond(state)).toBe(0);
  });

  it("gives the time that is left, or that it is unknown", () => {
    const start = applied(viewOf([]), { type: "vitals", vitals: { waitingItems: 10, runningItems: 2 } });
    expect(timeLeftMs(start)).toBeNull();
    let state = start;
    for (let second = 1; second <= 3; second++) {
      state = applied(
        state,
        { type: "tick", nowMs: NOW + second * 1000 },
        { type: "images", count: 2, atMs: NOW },
      );
    }
    state = applied(state, { type: "tick", nowMs: NOW + 4000 });
    expect(timeLeftMs(state)).toBe(6000);
    expect(timeLeftMs(applied(state, { type: "vitals", vitals: { isPaused: true } }))).toBeNull();
    expect(timeLeftMs(applied(state, { type: "vitals", vitals: { waitingItems: 0, runningItems: 0 } }))).toBe(
      0,
    );
  });
});
