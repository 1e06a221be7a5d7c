import type { WaitingCode } from "../../contract/waiting.ts";
import type { Trouble } from "../ports/image-provider.ts";

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;

/** The scope of a state that concerns every model of a provider, because it concerns the credential. */
export const EVERY_MODEL = "*";

/** The health of a provider for one model, or for all (`*`) when it concerns the credential. */
export interface HealthRecord {
  provider: string;
  /** The id that the upstream knows, or `*`. */
  model: string;
  state: "ok" | "cooling" | "disabled";
  /** When a pause ends; null unless cooling. */
  untilMs: number | null;
  /** Why it is not well; null when it is. `message` is that of the last failure, also before it makes a pause. */
  trouble: Trouble | null;
  message: string | null;
  /** The upstream's own words about the last failure, see `ProviderError`; left out or null for none. */
  said?: string | null;
  /** Requests in a row that have failed; left out for none. */
  failures?: number;
  /** Pauses since the last success. */
  pauses: number;
  /** The items of the last failures in a row. */
  failedItems: readonly string[];
  /** When the upstream answered 403, in the last hours. */
  forbiddenMs: readonly number[];
}

interface Rule {
  /** Whether the trouble concerns one model, or the credential and with it every model. */
  scope: "model" | "credential";
  /** The first pause. Each further pause without a success between them is twice as long, up to `capMs`. Infinity: until the configuration changes. */
  baseMs: number;
  capMs: number;
  /** How many troubles it takes, of different items in a row. */
  inARow?: number;
  /** This many within the time disable the provider. */
  disables?: { count: number; withinMs: number };
}

const FAILURE: Rule = { scope: "model", baseMs: 30 * SECOND_MS, capMs: 5 * MINUTE_MS, inARow: 5 };

/** The effect of each trouble on a provider. */
export const RULES: Readonly<Record<Trouble, Rule>> = {
  credential: { scope: "credential", baseMs: Number.POSITIVE_INFINITY, capMs: Number.POSITIVE_INFINITY },
  billing: { scope: "credential", baseMs: 10 * MINUTE_MS, capMs: 6 * HOUR_MS },
  forbidden: {
    scope: "credential",
    baseMs: 10 * MINUTE_MS,
    capMs: 10 * MINUTE_MS,
    disables: { count: 3, withinMs: 3 * HOUR_MS },
  },
  "no-model": { scope: "model", baseMs: HOUR_MS, capMs: HOUR_MS },
  limited: { scope: "model", baseMs: 5 * SECOND_MS, capMs: MINUTE_MS },
  unreachable: FAILURE,
  failing: FAILURE,
  ambiguous: FAILURE,
};

/** What a batch reports while it waits for a trouble to end. */
export const WAITING_CODE_OF: Readonly<Record<Trouble, WaitingCode>> = {
  credential: "PROVIDER_CREDENTIAL",
  forbidden: "PROVIDER_FORBIDDEN",
  billing: "PROVIDER_BILLING",
  "no-model": "PROVIDER_MODEL_MISSING",
  limited: "PROVIDER_RATE_LIMITED",
  unreachable: "PROVIDER_UNREACHABLE",
  failing: "PROVIDER_FAILING",
  ambiguous: "PROVIDER_FAILING",
};

/** A result of a request, as far as it concerns the provider. */
export type HealthEvent =
  | { type: "success" }
  | {
      type: "trouble";
      trouble: Trouble;
      /** For people: what happened. */
      message: string;
      /** See `ProviderError`. */
      said?: string | null;
      /** See `ProviderError`. */
      isOfModel?: boolean;
      /** The item that had the trouble. An item counts once in a row of failures. */
      itemId: string;
      /** The pause that the upstream asked for; null when it asked for none. */
      retryAfterMs: number | null;
    };

/** The state of a provider that has had no trouble. */
export function healthy({ provider, model }: Pick<HealthRecord, "provider" | "model">): HealthRecord {
  return { provider, model, ...WELL };
}

const WELL = {
  state: "ok",
  untilMs: null,
  trouble: null,
  message: null,
  said: null,
  failures: 0,
  pauses: 0,
  failedItems: [],
  forbiddenMs: [],
} as const satisfies Omit<HealthRecord, "provider" | "model">;

/**
 * Returns the state after a result. The request must have begun in the state `before`: results of requests that began
 * earlier do not end a pause and do not lengthen the next one (`lateResult`). A pure function.
 */
export function afterResult(before: HealthRecord, event: HealthEvent, nowMs: number): HealthRecord {
  if (event.type === "success")
    return before.state === "disabled" ? before : { ...before, ...WELL, forbiddenMs: before.forbiddenMs };
  const { trouble, message, said = null, itemId, retryAfterMs } = event;
  const rule = RULES[trouble];
  const forbiddenMs = rule.disables
    ? [...before.forbiddenMs.filter((ms) => nowMs - ms < (rule.disables?.withinMs ?? 0)), nowMs]
    : before.forbiddenMs;
  const known = { ...before, forbiddenMs, message, said, failures: (before.failures ?? 0) + 1 };
  if (!Number.isFinite(rule.baseMs) || (rule.disables && forbiddenMs.length >= rule.disables.count)) {
    return { ...known, state: "disabled", untilMs: null, trouble };
  }
  const failedItems = rule.inARow ? [...new Set([...before.failedItems, itemId])] : before.failedItems;
  // The first request after a pause for failures decides. A failure after another pause is the first in its row.
  const isSamePause = before.state === "cooling" && before.trouble !== null && RULES[before.trouble].inARow;
  const isEnough = !rule.inARow || isSamePause || failedItems.length >= rule.inARow;
  if (!isEnough) return { ...known, failedItems };
  const pauses = before.trouble === trouble || rule.inARow ? before.pauses + 1 : 1;
  const ownMs = Math.min(rule.capMs, rule.baseMs * 2 ** (pauses - 1));
  // An announced pause of nothing would hammer the upstream.
  const announcedMs = retryAfterMs !== null && retryAfterMs >= SECOND_MS ? retryAfterMs : null;
  const pauseMs =
    trouble === "limited" && announcedMs !== null ? announcedMs : Math.max(ownMs, announcedMs ?? 0);
  const untilMs = Math.max(before.untilMs ?? 0, nowMs + pauseMs);
  return { ...known, state: "cooling", untilMs, trouble, pauses, failedItems: [] };
}

/**
 * Returns the state after a result of a request that began before the present pause. Only a later deadline counts, and
 * what disables the provider.
 */
export function lateResult(before: HealthRecord, event: HealthEvent, nowMs: number): HealthRecord {
  if (event.type === "success" || before.state === "disabled") return before;
  // The pause is over by now: a failure counts like any other.
  if (before.state === "ok") return afterResult(before, event, nowMs);
  const { trouble, message, said = null, retryAfterMs } = event;
  if (!Number.isFinite(RULES[trouble].baseMs)) return afterResult(before, event, nowMs);
  const untilMs = nowMs + (retryAfterMs ?? 0);
  return untilMs > (before.untilMs ?? 0) ? { ...before, untilMs, trouble, message, said } : before;
}

/** How many requests a provider gets at once. A refusal for too many requests (429) lowers it, and successes raise it. */
export interface Pace {
  /** At least 1, at most the concurrency of the provider. */
  atOnce: number;
  /** Successes since `atOnce` has changed. */
  successes: number;
  /** Counts the cuts: requests that were sent before the last cut say nothing about the pace after it. */
  cuts: number;
}

/** A pause of this length or more, in ms, is a quota of a minute or a day: every other request would be refused, too. */
const QUOTA_PAUSE_MS = 30 * SECOND_MS;

/** Whether a refusal for too many requests announces that all requests must wait, and not only the refused one. */
export function isQuotaPause(retryAfterMs: number | null): boolean {
  return retryAfterMs !== null && retryAfterMs >= QUOTA_PAUSE_MS;
}

/** Halves the pace after a refusal. A pace of 1 stays: then the provider pauses. */
export function slower({ atOnce, cuts }: Pace): Pace {
  return { atOnce: Math.max(1, Math.floor(atOnce / 2)), successes: 0, cuts: cuts + 1 };
}

/** Raises the pace by one after as many successes as it has requests at once. */
export function afterSuccess(pace: Pace, concurrency: number): Pace {
  const successes = pace.successes + 1;
  if (pace.atOnce >= concurrency || successes < pace.atOnce) return { ...pace, successes };
  return { ...pace, atOnce: pace.atOnce + 1, successes: 0 };
}
