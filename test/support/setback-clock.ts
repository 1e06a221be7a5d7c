import { systemClock } from "../../src/kernel/clock.ts";
import { FakeClock } from "./fake-clock.ts";

/** A wall clock that is set forward and back, while time itself (what sleeps wait for) goes on evenly. */
export class SetbackClock extends FakeClock {
  #offsetMs = 0;

  override nowMs(): number {
    return super.nowMs() + this.#offsetMs;
  }

  override monotonicMs(): number {
    return super.nowMs();
  }

  /** Sets the wall clock; nobody wakes. */
  set(byMs: number): void {
    this.#offsetMs += byMs;
  }
}

/** Real time, shown by a clock that is wrong by this much; it can be set while it is in use. */
export function wrongClock(byMs: number) {
  const clock = { ...systemClock, byMs, nowMs: () => systemClock.nowMs() + clock.byMs };
  return clock;
}
