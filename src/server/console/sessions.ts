import type { Clock } from "../../kernel/clock.ts";
import { TimedSecrets } from "../limits/timed-secrets.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** The secrets by which a person uses the service from a browser. */
export interface ConsoleSecrets {
  /** A code buys a session, once, within 10 minutes. */
  codes: TimedSecrets<{ keyId: string }>;
  /** The token of a session works like its key for 12 hours. */
  sessions: TimedSecrets<{ keyId: string }>;
  /** A ticket downloads the ZIP of one batch, once, within a minute. */
  tickets: TimedSecrets<{ keyId: string; batchId: string }>;
}

/** A session lasts so long. */
export const SESSION_MS = 12 * HOUR_MS;

export function consoleSecrets(clock: Clock): ConsoleSecrets {
  return {
    codes: new TimedSecrets(clock, { lifeMs: 10 * MINUTE_MS, mostPerKey: 10 }),
    // The prefix of a key: whatever hides keys in logs and messages hides tokens, too.
    sessions: new TimedSecrets(clock, { lifeMs: SESSION_MS, mostPerKey: 100, prefix: "imgb_session_" }),
    tickets: new TimedSecrets(clock, { lifeMs: MINUTE_MS, mostPerKey: 100 }),
  };
}
