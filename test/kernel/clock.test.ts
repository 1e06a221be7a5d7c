import { describe, expect, it, vi } from "vitest";
import { systemClock } from "../../src/kernel/clock.ts";

const DAY_MS = 86_400_000;

describe("the clock", () => {
  it("[WORK-5] sleeps as long as it was told, also longer than a timer can run", async () => {
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

  it("[WORK-5] a sleep that is aborted ends with the reason", async () => {
    const controller = new AbortController();
    const sleep = systemClock.sleep(60 * DAY_MS, controller.signal);
    controller.abort(new Error("enough"));
    await expect(sleep).rejects.toThrow("enough");
  });
});
