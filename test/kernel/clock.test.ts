import { describe, expect, it, vi } from "vitest";
import { systemClock, wallClock } from "../../src/kernel/clock.ts";

const DAY_MS = 86_400_000;

describe("the clock", () => {
  it("sleeps for the whole time, also longer than a timer can run", async () => {
    vi.useFakeTimers();
    try {
      const woken = vi.fn();
      const sleep = systemClock.sleep(60 * DAY_MS).then(woken);
      await vi.advanceTimersByTimeAsync(59 * DAY_MS);
      expect(woken).not.toHaveBeenCalled();
      await vi.advanceTimersByTimeAsync(DAY_MS);
      await sleep;
      expect(woken).toHaveBeenCalled();
    } finally {
      vi.useRealTimers();
    }
  });

  it("a sleep that is aborted ends with the reason", async () => {
    const controller = new AbortController();
    const sleep = systemClock.sleep(60 * DAY_MS, controller.signal);
    controller.abort(new Error("enough"));
    await expect(sleep).rejects.toThrow("enough");
  });

  it("a sleep by the wall clock is over at its time of day, also when the machine slept in between", async () => {
    vi.useFakeTimers();
    try {
      const woken = vi.fn();
      const sleep = wallClock.sleep(30_000).then(woken);
      await vi.advanceTimersByTimeAsync(1_000);
      // Timers do not run while a lid is closed; the time of day does.
      vi.setSystemTime(Date.now() + 3_600_000);
      await vi.advanceTimersByTimeAsync(2_000);
      await sleep;
      expect(woken).toHaveBeenCalled();
    } finally {
      vi.useRealTimers();
    }
  });

  it("a clock that is set back makes no sleep longer, and an abort ends it", async () => {
    vi.useFakeTimers();
    try {
      const woken = vi.fn();
      const sleep = wallClock.sleep(30_000).then(woken);
      await vi.advanceTimersByTimeAsync(1_000);
      vi.setSystemTime(Date.now() - 3_600_000);
      await vi.advanceTimersByTimeAsync(28_999);
      expect(woken).not.toHaveBeenCalled();
      await vi.advanceTimersByTimeAsync(1);
      await sleep;
      const controller = new AbortController();
      const aborted = wallClock.sleep(30_000, controller.signal);
      controller.abort(new Error("enough"));
      await expect(aborted).rejects.toThrow("enough");
    } finally {
      vi.useRealTimers();
    }
  });
});
