import { formatDuration } from "../kernel/durations.ts";

/** A job at an upstream, as the batch API, the live view and `status` show it. */
export interface ShownJob {
  /** Our id of it, which the upstream keeps. */
  id: string;
  /** The upstream's own name; null while none is known. */
  name: string | null;
  /** The step that it is at, or the upstream's own word for its state. */
  state: string;
  /** The last words of the upstream about it; null before. */
  said: string | null;
  createdAtMs: number;
}

/** Describes the jobs of a batch: `upstream job RUNNING for 12 min`, `3 upstream jobs, the oldest PENDING for 2 h`. */
export function jobsText(
  jobs: readonly Pick<ShownJob, "state" | "createdAtMs">[],
  nowMs: number,
): string | null {
  const [oldest] = [...jobs].sort((a, b) => a.createdAtMs - b.createdAtMs);
  if (!oldest) return null;
  const state = `${oldest.state} for ${formatDuration(nowMs - oldest.createdAtMs)}`;
  return jobs.length === 1 ? `upstream job ${state}` : `${jobs.length} upstream jobs, the oldest ${state}`;
}
