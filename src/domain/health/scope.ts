import type { HealthRecord } from "../records.ts";

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
