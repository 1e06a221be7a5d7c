export interface BackoffPolicy {
  /** Ceiling of the first delay, in ms; it doubles with each attempt. */
  baseMs: number;
  /** No delay is longer. */
  capMs: number;
}

/** Returns the delay before retry number `attempt` (1 for the first retry), in ms, with full jitter. */
export function backoffMs(attempt: number, policy: BackoffPolicy, random: () => number): number {
  const ceiling = Math.min(policy.capMs, policy.baseMs * 2 ** (attempt - 1));
  return Math.round(random() * ceiling);
}
