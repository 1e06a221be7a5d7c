import { type Clock, systemClock } from "../../../src/kernel/clock.ts";
import { HEARTBEAT_MS } from "../../../src/workers/presence.ts";

/**
 * How long the processes of one database sleep in order to know of each other: between two beats, two looks, two pings
 * and two tries to connect. No test moves its clock for these.
 */
const BETWEEN_PROCESSES_MS = new Set([HEARTBEAT_MS, 200, 3000, 50]);

/**
 * The clock of a test, on which all sleep but those that keep a process alive to the others. These go by the clocks of
 * the database and of other processes, which no test moves.
 */
export function passing(clock: Clock): Clock {
  return {
    nowMs: () => clock.nowMs(),
    monotonicMs: () => clock.monotonicMs() + systemClock.monotonicMs(),
    // More often: after a jump of the clock a process begins nothing before its next beat.
    sleep: (ms, signal) =>
      BETWEEN_PROCESSES_MS.has(ms) ? systemClock.sleep(ms / 10, signal) : clock.sleep(ms, signal),
  };
}
