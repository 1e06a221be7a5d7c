import { parseDuration } from "../kernel/durations.ts";

/**
 * Directives in the prompts of a drawn job's lines, by which anyone can test a client of batch jobs.
 *
 * - `job-fail`, `job-expire`: the job ends without results, as failed or expired.
 * - `job-partial`: the job fails with the results of the lines before this one.
 * - `job-stuck:10m`: no line of the job is made for that long.
 * - `line-lost`, `line-twice`: the results have this line not at all, or twice.
 * - `lines-shuffled`: the results come in another order.
 */
export const JOB_DIRECTIVES = [
  "job-fail",
  "job-expire",
  "job-partial",
  "job-stuck",
  "line-lost",
  "line-twice",
  "lines-shuffled",
] as const;

/** The longest time that a job can be stuck, in ms: a day. */
const MAX_STUCK_MS = 24 * 3_600_000;

/** Returns how long a job is stuck, in ms. Null for a text that is no time up to a day. */
export function stuckMs(value: string): number | null {
  const ms = parseDuration(value);
  return ms !== null && ms <= MAX_STUCK_MS ? ms : null;
}
