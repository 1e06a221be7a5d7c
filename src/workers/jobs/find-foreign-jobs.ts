import { CLOCK_SLACK_MS, FORGOTTEN_MS } from "../../domain/jobs/job-rules.ts";
import type { JobProvider, UpstreamJob } from "../../domain/ports/image-provider.ts";
import type { WorkerDeps } from "../deps.ts";

/**
 * Looks for jobs at the upstream that no record names, and records them. They may be another machine's, and are left
 * alone. Logs those that were not known.
 */
export async function findForeignJobs(
  { stores, clock, log }: WorkerDeps,
  provider: JobProvider,
  signal: AbortSignal,
): Promise<void> {
  const backToMs = clock.nowMs() - FORGOTTEN_MS - CLOCK_SLACK_MS;
  const running: UpstreamJob[] = [];
  for await (const job of provider.list(signal)) {
    if (job.createdAtMs !== null && job.createdAtMs < backToMs) break;
    if (job.state === "running") running.push(job);
  }
  const before = new Set(
    (await stores.read.upstreamJobs.foreign())
      .filter((job) => job.provider === provider.name)
      .map(({ name }) => name),
  );
  const foreign = (await stores.read.upstreamJobs.unknown(running)).map(
    ({ name, jobId, said, createdAtMs }) => {
      return { provider: provider.name, name, jobId, said, createdAtMs };
    },
  );
  for (const { name, jobId } of foreign.filter((job) => !before.has(job.name)))
    log.warn("the upstream has a job that this service does not know; it is left alone", {
      provider: provider.name,
      job: name,
      id: jobId,
    });
  if (foreign.length > 0 || before.size > 0)
    await stores.write((tx) => tx.upstreamJobs.setForeign(provider.name, foreign));
}
