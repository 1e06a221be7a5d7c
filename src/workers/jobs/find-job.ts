import { CLOCK_SLACK_MS } from "../../domain/jobs/job-rules.ts";
import type { JobProvider, UpstreamJob } from "../../domain/ports/image-provider.ts";
import type { UpstreamJobRecord } from "../../domain/ports/upstream-jobs.ts";

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
