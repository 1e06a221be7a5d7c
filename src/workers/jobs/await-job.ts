import { FORGOTTEN_MS, GIVE_UP_MS, pollPauseMs } from "../../domain/jobs/job-rules.ts";
import { ProviderError, type UpstreamJob } from "../../domain/ports/image-provider.ts";
import type { UpstreamJobRecord } from "../../domain/ports/upstream-jobs.ts";
import type { JobWork } from "./job-work.ts";

/**
 * Polls a job until the upstream has ended it. A job that takes too long is cancelled; from the first request to stop it,
 * the upstream has an hour to end it, over any number of starts. Troubles of polling never end a job before that.
 */
export async function awaitJob(work: JobWork, job: UpstreamJobRecord): Promise<void> {
  const { deps, provider, jobId, signal } = work;
  const { stores, clock, log } = deps;
  const { times } = provider;
  const name = job.upstreamName ?? "";
  const sentAtMs = job.sentAtMs ?? job.createdAtMs;
  let polledAtMs: number | null = null;
  let isTold = false;
  let { stopAskedAtMs } = job;
  let missingSinceMs: number | null = null;
  for (;;) {
    const nowMs = clock.nowMs();
    const isStuck = nowMs - sentAtMs >= times.jobMs;
    const pauseMs = isStuck ? times.pollMs : pollPauseMs(nowMs - sentAtMs, times.pollMs);
    if (isStuck && stopAskedAtMs === null) {
      stopAskedAtMs = nowMs;
      await stores.write((tx) => tx.upstreamJobs.update(jobId, { stopAskedAtMs: nowMs }));
    }
    if (isStuck && !isTold) isTold = await tell(work, name);
    const dueMs = polledAtMs === null ? nowMs : polledAtMs + pauseMs;
    const seen = await work.watch.look({ name, sentAtMs, dueMs }, signal).catch((error) => {
      if (!(error instanceof ProviderError)) throw error;
      return error;
    });
    polledAtMs = clock.nowMs();
    const isMissing = seen instanceof ProviderError && seen.upstreamStatus === 404;
    missingSinceMs = isMissing ? (missingSinceMs ?? polledAtMs) : null;
    if (!(seen instanceof ProviderError)) {
      await record(work, seen, polledAtMs);
      if (seen.state !== "running") return;
    } else log.debug("a job could not be looked at; trying again", { job: jobId, error: seen.message });
    const end = reasonToEnd(work, { isMissing, missingSinceMs, nowMs: polledAtMs, sentAtMs, stopAskedAtMs });
    if (end === null) continue;
    const facts = { step: "ended", state: "expired", said: end, endedAtMs: polledAtMs } as const;
    await stores.write((tx) => tx.upstreamJobs.update(jobId, facts));
    return;
  }
}

function reasonToEnd(
  { provider: { times } }: JobWork,
  facts: {
    isMissing: boolean;
    missingSinceMs: number | null;
    nowMs: number;
    sentAtMs: number;
    stopAskedAtMs: number | null;
  },
): string | null {
  const { isMissing, missingSinceMs, nowMs, sentAtMs, stopAskedAtMs } = facts;
  const isGone =
    isMissing && (nowMs - (missingSinceMs ?? nowMs) >= times.lostMs || nowMs - sentAtMs > FORGOTTEN_MS);
  if (isGone) return "The upstream does not know the job any more. The images may have been billed.";
  if (stopAskedAtMs === null || nowMs - stopAskedAtMs < GIVE_UP_MS) return null;
  return `The upstream did not end the job within ${Math.round(times.jobMs / 3_600_000)} hours, nor after it was asked to stop it. The images may be billed.`;
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
