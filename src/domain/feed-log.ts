import type { LogLevel } from "../contract/activity.ts";
import type { Clock } from "../kernel/clock.ts";
import { hideApiKeys } from "../kernel/hide-keys.ts";
import type { Log } from "../kernel/log.ts";
import type { Feed } from "./feed.ts";

/** A log whose lines go to the feed, for a live view. API keys are cut out. */
export function feedLog(feed: Feed, clock: Clock): Log {
  const say =
    (level: LogLevel) =>
    (message: string, facts: object = {}) => {
      const rest = Object.entries(facts).map(([name, value]) => `${name}=${String(value)}`);
      feed.publish({
        type: "log",
        line: { atMs: clock.nowMs(), level, text: hideApiKeys([message, ...rest].join(" ")) },
      });
    };
  return { debug: say("debug"), info: say("info"), warn: say("warn"), error: say("error") };
}
