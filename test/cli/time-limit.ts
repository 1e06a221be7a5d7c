import { vi } from "vitest";
import { systemClock } from "../../src/kernel/clock.ts";

/** For `--timeout`: no other sleep of a command has exactly this length. It is told as `1 s`. */
export const LIMIT = "1001ms";
const LIMIT_MS = 1001;
/** As it is outside of tests, also for a second limit of one test. */
const { sleep } = systemClock;

/**
 * Until the end of the test `LIMIT`, or another wait of a command of `limitMs`, is over for a command in this process as soon as `isOver` says so, however long the
 * machine takes until then.
 */
export function endLimitWhen(isOver: () => boolean, limitMs = LIMIT_MS): void {
  vi.spyOn(systemClock, "sleep").mockImplementation(async (ms, signal) => {
    if (ms !== limitMs) return sleep(ms, signal);
    while (!isOver()) await sleep(10, signal);
  });
}
