import type { Stores } from "../../domain/ports/stores.ts";
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

/** How long a session lasts. */
export const SESSION_MS = 12 * HOUR_MS;
const CODES = { lifeMs: 10 * MINUTE_MS, mostPerKey: 10 };
// The prefix of a key: whatever hides keys in logs and messages hides tokens, too.
const SESSIONS = { lifeMs: SESSION_MS, mostPerKey: 100, prefix: "imgb_session_" };
const TICKETS = { lifeMs: MINUTE_MS, mostPerKey: 100 };

/** All processes of the service know them, also after a restart. */
export function consoleSecrets(deps: { stores: Stores; clock: Clock }): ConsoleSecrets {
  return {
    codes: new TimedSecrets(deps, "code", CODES),
    sessions: new TimedSecrets(deps, "session", SESSIONS),
    tickets: new TimedSecrets(deps, "ticket", TICKETS),
  };
}
