import { expect, it } from "vitest";
import { Feed, type ServiceEvent } from "../../src/domain/feed.ts";
import { feedLog } from "../../src/service/pino-log.ts";
import { FakeClock } from "../support/fake-clock.ts";

it("lines of the log come on the feed with level and facts, without keys", () => {
  const feed = new Feed();
  const told: ServiceEvent[] = [];
  feed.subscribe((event) => told.push(event));
  const clock = new FakeClock();
  const log = feedLog(feed, clock);
  const key = `imgb_${"k".repeat(43)}`;
  log.warn("image could not be stored; trying again", { batch: "b1", attempt: 2, note: key });
  log.error(`it was ${key}`);
  const texts = told.map((event) => (event.type === "log" ? event.line : null));
  expect(texts).toMatchObject([
    { atMs: clock.nowMs(), level: "warn", text: expect.stringContaining("batch=b1 attempt=2") },
    { level: "error" },
  ]);
  expect(JSON.stringify(told)).not.toContain(key);
});
