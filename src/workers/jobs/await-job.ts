import { FORGOTTEN_MS, GIVE_UP_MS, pollPauseMs } from "../../domain/jobs/job-rules.ts";
import { ProviderError, type UpstreamJob } from "../../domain/ports/image-provider.ts";
import type { UpstreamJobRecord } from "../../domain/ports/upstream-jobs.ts";
import type { JobWork } from "./job-work.ts";

/**
 * Polls a job until the upstream has ended it. A job that takes too long is cancelled; the upstream has an hour to end
 * it. Troubles of polling never end a job before that.
 */
export async function awaitJob(work: JobWork, job: UpstreamJobRecord): Promise<void> {
  const { deps, provider, jobId, signal } = work;
  const { stores, clock, log } = deps;
  const { times } = provider;
  const name = job.upstreamName ?? "";
  const sentAtMs = job.sentAtMs ?? job.createdAtMs;
  let polledAtMs: number | null = null;
  let isTold = false;
  let missingSinceMs: number | null = null;
  // Counted in this process: the upstream gets its hour also after a time without a service.
  let stuckSinceMs: number | null = null;
  for (;;) {
    const nowMs = clock.nowMs();
    const isStuck = nowMs - sentAtMs >= times.jobMs;
    const pauseMs = isStuck ? times.pollMs : pollPauseMs(nowMs - sentAtMs, times.pollMs);
    if (isStuck && !isTold) isTold = await tell(work, name);
    const dueMs = polledAtMs === null ? nowMs : nowMs + pauseMs;
    const seen = await work.watch.look({ name, sentAtMs, dueMs }, signal).catch((error) => {
      if (!(error instanceof ProviderError)) throw error;
      return error;
    });
    polledAtMs = clock.nowMs();
    if (isStuck) stuckSinceMs ??= polledAtMs;
    const isMissing = seen instanceof ProviderError && seen.upstreamStatus === 404;
    missingSinceMs = isMissing ? (missingSinceMs ?? polledAtMs) : null;
    if (!(seen instanceof ProviderError)) {
      await record(work, seen, polledAtMs);
      if (seen.state !== "running") return;
    } else log.debug("a job could not be looked at; trying again", { job: jobId, error: seen.message });
    const end = reasonToEnd(work, { isMissing, missingSinceMs, stuckSinceMs, nowMs: polledAtMs, sentAtMs });
    if (end === null) continue;
    const facts = { step: "ended", state: end.state, said: end.said, endedAtMs: polledAtMs } as const;
    await stores.write((tx) => tx.upstreamJobs.update(jobId, facts));
    return;
  }
}

/** The state stays "running" when the upstream itself has not ended the job: it is still to be stopped. */
function reasonToEnd(
  { provider: { times } }: JobWork,
  facts: {
    isMissing: boolean;
    missingSinceMs: number | null;
    stuckSinceMs: number | null;
    nowMs: number;
    sentAtMs: number;
  },
): Pick<UpstreamJob, "state" | "said"> | null {
  const { isMissing, missingSinceMs, stuckSinceMs, nowMs, sentAtMs } = facts;
  const isGone =
    isMissing && (nowMs - (missingSinceMs ?? nowMs) >= times.lostMs || nowMs - sentAtMs > FORGOTTEN_MS);
  if (isGone) {
    const said = "The upstream does not know the job any more. The images may have been billed.";
    return { state: "expired", said };
  }
  if (stuckSinceMs === null || nowMs - stuckSinceMs < GIVE_UP_MS) return null;
  const hours = Math.round(times.jobMs / 3_600_000);
  const said = `The upstream did not end the job within ${hours} hours, nor after it was asked to stop it. The images may be billed.`;
  return { state: "running", said };
}

async function tell({ deps, provider, jobId, signal }: JobWork, name: string): Promise<boolean> {
  try {
    await provider.cancel(name, signal);
    deps.log.warn("a job takes too long; the upstream was asked to stop it", { job: jobId });
    return true;
  } catch (error) {
    signal.throwIfAborted();
    deps.log.warn("a job takes too long, and the upstream could not be asked to stop it", {
      job: jobId,
      error: String(error),
    });
    return false;
  }
}

function record(work: JobWork, { state, said }: UpstreamJob, polledAtMs: number): Promise<void> {
  const { deps, jobId } = work;
  const seen = { state, said, polledAtMs };
  if (work.job) work.job = { ...work.job, ...seen };
  const end = state === "running" ? {} : ({ step: "ended", endedAtMs: polledAtMs } as const);
  return deps.stores.write((tx) => tx.upstreamJobs.update(jobId, { ...seen, ...end }));
}
