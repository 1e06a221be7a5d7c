import type { Trouble } from "../ports/image-provider.ts";
import type { HealthRecord } from "../records.ts";

/** Why a provider is not asked now. */
export interface Block {
  provider: string;
  trouble: Trouble;
  message: string;
  /** When it may be asked again; null when only a change of the configuration helps. */
  untilMs: number | null;
  /** See `ProviderError`. */
  said?: string | null;
}

/** What is known of a provider that has had trouble with a model, or with every model. */
export interface KnownTrouble extends Block {
  /** The upstream's id of the model, or `EVERY_MODEL`. */
  model: string;
  /** Requests in a row that have failed. */
  failures: number;
  /** It may be asked all the same: too few requests have failed, or its pause is over. */
  isOver: boolean;
}

/** The state of a provider for one model, or for all its models, as a process knows it. */
export interface Scope {
  record: HealthRecord;
  /** The record as this process knows the database to have it. */
  stored: HealthRecord;
  /** The pause of another process that could not reach the upstream: this one may be able to. */
  elsewhere: HealthRecord | null;
  /** Counts changes of the state, so that a late result is recognised. */
  generation: number;
  isProbing: boolean;
}

export const scopeOf = (record: HealthRecord): Scope => ({
  record,
  stored: record,
  elsewhere: null,
  generation: 0,
  isProbing: false,
});

export const keyOf = ({ provider, model }: { provider: string; model: string }) =>
  JSON.stringify([provider, model]);

/** Whether a state keeps every process from asking for longer than another one does. */
export function lastsLonger(one: HealthRecord, other: HealthRecord, nowMs: number): boolean {
  if (one.state === "ok" || one.trouble === "unreachable" || other.state === "disabled") return false;
  const untilMs = one.untilMs ?? Number.POSITIVE_INFINITY;
  return untilMs > Math.max(nowMs, other.untilMs ?? 0);
}

/** Whether requests of the state before are late in the state after. */
export const isOther = (before: HealthRecord, after: HealthRecord) =>
  after.state !== before.state || (after.state === "cooling" && after.untilMs !== before.untilMs);

export const isSame = (a: HealthRecord, b: HealthRecord) => JSON.stringify(a) === JSON.stringify(b);

/** Returns the trouble of a state that has this block; null when there was none since the last success. */
export function troubleOf(record: HealthRecord, block: Block | null): KnownTrouble | null {
  const { provider, model, failures = 0, message, said = null, trouble } = record;
  if (block === null && failures === 0) return null;
  const last = { provider, trouble: trouble ?? "failing", message: message ?? "", said, untilMs: null };
  return { ...(block ?? last), model, failures, isOver: block === null };
}
