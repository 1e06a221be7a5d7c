import { type Clock, systemClock } from "../../../src/kernel/clock.ts";

/**
 * Shows the time of a test's clock, and lets real time pass as well: a sleep ends when either of them says so. The
 * database and the other processes have clocks of their own, and a process whose time stands still would be dead to them.
 */
export function passing(clock: Clock): Clock {
  return {
    nowMs: () => clock.nowMs(),
    monotonicMs: () => clock.monotonicMs() + systemClock.monotonicMs(),
    sleep: async (ms, signal) => {
      const ended = new AbortController();
      const either = signal ? AbortSignal.any([signal, ended.signal]) : ended.signal;
      const sleeps = [clock, systemClock].map((each) => each.sleep(ms, either));
      try {
        await Promise.race(sleeps);
      } finally {
        ended.abort();
        await Promise.allSettled(sleeps);
      }
    },
  };
}
