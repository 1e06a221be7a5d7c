import { beforeEach, describe, expect, it, vi } from "vitest";
import { systemClock } from "../../src/kernel/clock.ts";
import { withTimeLimit } from "../../src/providers/upstream/provider.ts";
import { troubled } from "../support/fake-provider.ts";

beforeEach(() => void vi.useFakeTimers());

describe("the clock", () => {
  it("a sleep is over at its time of day, also when the machine slept in between", async () => {
    const woken = vi.fn();
    const sleep = systemClock.sleep(30_000).then(woken);
    await vi.advanceTimersByTimeAsync(1_000);
    // Timers do not run while a lid is closed; the time of day does.
    vi.setSystemTime(Date.now() + 3_600_000);
    await vi.advanceTimersByTimeAsync(2_000);
    await sleep;
    expect(woken).toHaveBeenCalled();
  });

  it("a clock that is set back makes no sleep longer, and an abort ends it", async () => {
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
  });

  it("[CLOCK-1] a request that may be paid is not ended early when the clock is set forward, and ends in time", async () => {
    const late = () => troubled("ambiguous");
    const call = (signal: AbortSignal) =>
      new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    const ended = vi.fn();
    const limit = { clock: systemClock, ms: 30_000, late };
    const request = withTimeLimit(limit, new AbortController().signal, call).catch(ended);
    await vi.advanceTimersByTimeAsync(1_000);
    vi.setSystemTime(Date.now() + 3_600_000);
    await vi.advanceTimersByTimeAsync(28_000);
    expect(ended).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1_000);
    await request;
    expect(ended).toHaveBeenCalled();
  });

  it("a time limit holds for a call that never heeds its signal", async () => {
    const limit = { clock: systemClock, ms: 30_000, late: () => troubled("ambiguous") };
    const deaf = withTimeLimit(limit, new AbortController().signal, () => new Promise<never>(() => {}));
    const ended = expect(deaf).rejects.toMatchObject({ trouble: "ambiguous" });
    await vi.advanceTimersByTimeAsync(30_000);
    await ended;
  });
});
