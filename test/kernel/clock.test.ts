import { describe, expect, it, vi } from "vitest";
import { systemClock } from "../../src/kernel/clock.ts";

describe("the clock", () => {
  it("a sleep is over at its time of day, also when the machine slept in between", async () => {
    vi.useFakeTimers();
    try {
      const woken = vi.fn();
      const sleep = systemClock.sleep(30_000).then(woken);
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
      const sleep = systemClock.sleep(30_000).then(woken);
      await vi.advanceTimersByTimeAsync(1_000);
      vi.setSystemTime(Date.now() - 3_600_000);
      await vi.advanceTimersByTimeAsync(28_999);
      expect(woken).not.toHaveBeenCalled();
      await vi.advanceTimersByTimeAsync(1);
      await sleep;
      const controller = new AbortController();
      const aborted = systemClock.sleep(30_000, controller.signal);
      controller.abort(new Error("enough"));
      await expect(aborted).rejects.toThrow("enough");
    } finally {
      vi.useRealTimers();
    }
  });
});
