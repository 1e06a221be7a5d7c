import { Feed } from "../../src/domain/feed.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import type { Log } from "../../src/kernel/log.ts";

/** What `beginExchange` needs. Each exchange is given to `ended` as it is logged. */
export function fakeExchangeDeps(ended: (line: { path: string; aborted?: boolean }) => void) {
  const note = (_message: string, facts?: object) => ended(facts as { path: string });
  const requestLog: Log = { debug: note, info: note, warn: note, error: note };
  return { ids: randomIds, requestLog, feed: new Feed(), clock: systemClock, isStopping: () => false };
}
