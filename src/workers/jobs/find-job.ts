import { CLOCK_SLACK_MS, FORGOTTEN_MS } from "../../domain/jobs/job-rules.ts";
import { type JobProvider, ProviderError, type UpstreamJob } from "../../domain/ports/image-provider.ts";
import type { UpstreamJobRecord } from "../../domain/ports/upstream-jobs.ts";
import type { JobWork } from "./job-work.ts";
import { waitAfter } from "./wait-for-upstream.ts";

/**
 * Looks through the upstream's list for a job that was created for this record and is not known yet: by our id or by its
 * input. Looks back to an hour before the record was made. Returns null when the list has none.
 */
export async function findJob(
  provider: JobProvider,
  job: UpstreamJobRecord,
  signal: AbortSignal,
): Promise<UpstreamJob | null> {
  const known = new Set([job.upstreamName, ...job.endedNames]);
  for await (const each of provider.list(signal)) {
    if (each.createdAtMs !== null && each.createdAtMs < job.createdAtMs - CLOCK_SLACK_MS) return null;
    const isOurs = each.jobId === job.id || (each.input !== null && each.input === job.input);
    if (isOurs && !known.has(each.name)) return each;
  }
  return null;
}

/**
 * The same for a job at work: a list that cannot be read is read again later, for as long as the upstream keeps jobs.
 * `mayGiveUp`: rejects with `ProviderError` after too long an outage before that.
 */
export async function findJobInTime(
  work: JobWork,
  job: UpstreamJobRecord,
  { mayGiveUp = false }: { mayGiveUp?: boolean } = {},
): Promise<UpstreamJob | null> {
  const { provider, deps, signal } = work;
  for (let tries = 1; ; tries++) {
    try {
      return await findJob(provider, job, signal);
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      if (deps.clock.nowMs() - (job.sentAtMs ?? job.createdAtMs) > FORGOTTEN_MS) return null;
      await waitAfter(work, error, tries, { mayGiveUp });
    }
  }
}
