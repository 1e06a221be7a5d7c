import pino from "pino";
import type { LogLine } from "../contract/activity.ts";
import type { Feed } from "../domain/feed.ts";
import type { Clock } from "../kernel/clock.ts";
import { hideApiKeys } from "../kernel/hide-keys.ts";
import type { Log } from "../kernel/log.ts";
import { escapeControls, escapeJsonControls } from "../kernel/text.ts";

export const LOG_LEVELS = ["debug", "info", "warn", "error", "silent"] as const;
type LogLevel = (typeof LOG_LEVELS)[number];

/**
 * A log on a stream: a JSON object a line, or (`forPeople`) a readable line. Nothing is buffered. An API key is cut out
 * wherever it stands: in a path, in a request id, in the message of an error.
 */
export function createLog(options: {
  level: LogLevel;
  forPeople: boolean;
  write: (line: string) => void;
}): Log {
  const destination = {
    write: (line: string) => {
      const safe = hideApiKeys(line);
      options.write(options.forPeople ? readable(safe) : escapeJsonControls(safe));
    },
  };
  const logger = pino(
    {
      level: options.level,
      base: null,
      formatters: { level: (label) => ({ level: label }) },
      redact: ["*.authorization", "*.api_key", "authorization", "api_key"],
    },
    destination,
  );
  return {
    debug: (message, facts = {}) => logger.debug(facts, message),
    info: (message, facts = {}) => logger.info(facts, message),
    warn: (message, facts = {}) => logger.warn(facts, message),
    error: (message, facts = {}) => logger.error(facts, message),
  };
}

function readable(line: string): string {
  const { time, level, msg, ...facts } = JSON.parse(line) as Record<string, unknown>;
  const clock = new Date(Number(time)).toISOString().slice(11, 19);
  const rest = Object.entries(facts).map(([key, value]) => `${key}=${escapeControls(String(value))}`);
  return `${[clock, String(level).padEnd(5), escapeControls(String(msg)), ...rest].join(" ")}\n`;
}

/** A log whose lines go to the feed, for a live view. API keys are cut out. */
export function feedLog(feed: Feed, clock: Clock): Log {
  const say =
    (level: LogLine["level"]) =>
    (message: string, facts: object = {}) => {
      const rest = Object.entries(facts).map(([name, value]) => `${name}=${String(value)}`);
      feed.publish({
        type: "log",
        line: { atMs: clock.nowMs(), level, text: hideApiKeys([message, ...rest].join(" ")) },
      });
    };
  return { debug: say("debug"), info: say("info"), warn: say("warn"), error: say("error") };
}
