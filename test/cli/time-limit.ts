import { vi } from "vitest";
import { systemClock } from "../../src/kernel/clock.ts";

/** For `--timeout`: no other sleep of a command has exactly this length. It is told as `1 s`. */
export const LIMIT = "1001ms";
const LIMIT_MS = 1001;

/**
 * Until the end of the test `LIMIT` is over for a command in this process as soon as `isOver` says so, however long the
 * machine takes until then.
 */
export function endLimitWhen(isOver: () => boolean): void {
  const { sleep } = systemClock;
  vi.spyOn(systemClock, "sleep").mockImplementation(async (ms, signal) => {
    if (ms !== LIMIT_MS) return sleep(ms, signal);
    while (!isOver()) await sleep(10, signal);
  });
}
