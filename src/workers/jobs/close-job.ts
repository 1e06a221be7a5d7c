import { MAKING_BATCH_STATUSES } from "../../contract/statuses.ts";
import { GIVE_UP_MS, unnamedJobs } from "../../domain/jobs/job-rules.ts";
import type { UpstreamJobRecord } from "../../domain/ports/batches.ts";
import { type JobProvider, ProviderError, type Trouble } from "../../domain/ports/image-provider.ts";
import type { Repositories, Stores } from "../../domain/ports/stores.ts";
import type { WorkerDeps } from "../deps.ts";
import { findJob } from "./send-job.ts";

/**
 * Removes what a job left behind at the upstream: stops jobs that nobody needs any more, and deletes the uploaded input
 * once no job reads it. A job of which the name is unknown is looked for. Does nothing for a job that is still needed.
 * Returns whether nothing is left to do. Rejects when the upstream cannot be reached or refuses. Can be repeated.
 */
export async function closeJob(
  deps: Pick<WorkerDeps, "stores" | "clock" | "log">,
  provider: JobProvider,
  jobId: string,
  signal: AbortSignal,
): Promise<boolean> {
  const { stores, clock } = deps;
  for (;;) {
    const job = await stores.read.upstreamJobs.byId(jobId);
    const batch = job && (await stores.read.batches.byId(job.batchId));
    if (!job || !batch || job.step === "closed") return true;
    if (job.step !== "done" && MAKING_BATCH_STATUSES.includes(batch.status)) return true;
    if (job.upstreamName !== null) {
      const isGivenUp = clock.nowMs() - (await askedAtMs(deps, job)) >= GIVE_UP_MS;
      if (!(await stop(deps, provider, job, job.upstreamName, isGivenUp, signal))) return false;
      const endedNames = [...job.endedNames, job.upstreamName];
      await updateSeen(stores, job, { upstreamName: null, endedNames, stopAskedAtMs: null });
      continue;
    }
    if (unnamedJobs(job) > 0) {
      const found = await findJob(provider, job, signal);
      if (found) {
        await updateSeen(stores, job, { upstreamName: found.name });
        continue;
      }
      if (clock.nowMs() - (job.sentAtMs ?? job.createdAtMs) < GIVE_UP_MS) return false;
    }
    if (job.input !== null) await discard(provider, job.input, signal);
    if (await updateSeen(stores, job, { step: "closed", closedAtMs: clock.nowMs() })) return true;
  }
}

/**
 * Changes a job, unless another process has learnt its name or ended one of its names since it was read. Returns whether it was changed.
 */
function updateSeen(
  stores: Stores,
  seen: UpstreamJobRecord,
  change: Parameters<Repositories["upstreamJobs"]["update"]>[1],
): Promise<boolean> {
  return stores.write(async (tx) => {
    await tx.lock("batch", seen.batchId);
    const now = await tx.upstreamJobs.byId(seen.id);
    if (now?.upstreamName !== seen.upstreamName || now.endedNames.length !== seen.endedNames.length)
      return false;
    await tx.upstreamJobs.update(seen.id, change);
    return true;
  });
}

/** Returns when the upstream was first asked to stop the job: now, when it was not. */
async function askedAtMs(
  { stores, clock }: Pick<WorkerDeps, "stores" | "clock">,
  { id, stopAskedAtMs }: UpstreamJobRecord,
): Promise<number> {
  if (stopAskedAtMs !== null) return stopAskedAtMs;
  const nowMs = clock.nowMs();
  await stores.write((tx) => tx.upstreamJobs.update(id, { stopAskedAtMs: nowMs }));
  return nowMs;
}

/** Returns whether the job has ended upstream, or is given up. */
async function stop(
  { log }: Pick<WorkerDeps, "log">,
  provider: JobProvider,
  { id }: UpstreamJobRecord,
  name: string,
  isGivenUp: boolean,
  signal: AbortSignal,
): Promise<boolean> {
  let refusal: unknown = null;
  // Upstreams refuse to cancel an ended job; then the refusal does not matter.
  await provider.cancel(name, signal).catch((error) => {
    refusal = error;
  });
  const seen = await provider.poll(name, signal).catch((error) => {
    const isMissing = error instanceof ProviderError && error.upstreamStatus === 404;
    // Gateways err, too: a job that nobody could stop is not gone after one such response.
    if (isMissing) return refusal === null || isGivenUp ? null : ({ state: "unknown" } as const);
    if (!isGivenUp) throw refusal ?? error;
    return { state: "running" } as const;
  });
  if (seen?.state === "unknown") return false;
  if (seen === null || seen.state !== "running") return true;
  if (isGivenUp) {
    log.error("a job could not be stopped within an hour; it may run on upstream, and be billed", {
      job: id,
    });
    return true;
  }
  if (refusal !== null) throw refusal;
  return false;
}

const FINAL: readonly (Trouble | null)[] = [null, "no-model", "forbidden"];

/** A refusal is final: the file does not exist any more, or cannot be deleted. */
async function discard(provider: JobProvider, input: string, signal: AbortSignal): Promise<void> {
  await provider.discard(input, signal).catch((error) => {
    const isFinal = error instanceof ProviderError && FINAL.includes(error.trouble);
    if (!isFinal) throw error;
  });
}
