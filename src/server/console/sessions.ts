import type { Stores } from "../../domain/ports/stores.ts";
import type { Clock } from "../../kernel/clock.ts";
import { StoredSecrets } from "../limits/stored-secrets.ts";
import { type SecretStore, TimedSecrets } from "../limits/timed-secrets.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** The secrets by which a person uses the service from a browser. */
export interface ConsoleSecrets {
  /** A code buys a session, once, within 10 minutes. */
  codes: SecretStore<{ keyId: string }>;
  /** The token of a session works like its key for 12 hours. */
  sessions: SecretStore<{ keyId: string }>;
  /** A ticket downloads the ZIP of one batch, once, within a minute. */
  tickets: SecretStore<{ keyId: string; batchId: string }>;
}

/** How long a session lasts. */
export const SESSION_MS = 12 * HOUR_MS;
const CODES = { lifeMs: 10 * MINUTE_MS, mostPerKey: 10 };
// The prefix of a key: whatever hides keys in logs and messages hides tokens, too.
const SESSIONS = { lifeMs: SESSION_MS, mostPerKey: 100, prefix: "imgb_session_" };
const TICKETS = { lifeMs: MINUTE_MS, mostPerKey: 100 };

/** They end with the process. */
export function consoleSecrets(clock: Clock): ConsoleSecrets {
  return {
    codes: new TimedSecrets(clock, CODES),
    sessions: new TimedSecrets(clock, SESSIONS),
    tickets: new TimedSecrets(clock, TICKETS),
  };
}

/** All processes of the service know them. */
export function sharedSecrets(deps: { stores: Stores; clock: Clock }): ConsoleSecrets {
  return {
    codes: new StoredSecrets(deps, "code", CODES),
    sessions: new StoredSecrets(deps, "session", SESSIONS),
    tickets: new StoredSecrets(deps, "ticket", TICKETS),
  };
}
