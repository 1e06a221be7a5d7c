/** A request that was answered, as the live views show it. `key` is the short name of the API key, never the key. */
export interface RequestLine {
  /** Milliseconds since 1970. */
  atMs: number;
  method: string;
  path: string;
  status: number;
  durationMs: number;
  key: string | null;
}

/** The levels of a log line, the worst first. */
export const LOG_LEVELS = ["error", "warn", "info", "debug"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** A line of the service's log. */
export interface LogLine {
  /** Milliseconds since 1970. */
  atMs: number;
  level: LogLevel;
  text: string;
}
