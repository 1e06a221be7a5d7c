import { isTerminal } from "../../contract/statuses.ts";
import type { JobProvider } from "../../domain/ports/image-provider.ts";
import type { WorkerDeps } from "../deps.ts";

const TIMEOUT_MS = 10_000;

/**
 * Cancels the upstream job of a batch that has ended. The job is looked up first when its name is unknown, because the
 * response to its submission was lost or is still on its way. Returns whether no job can be running any more; a job
 * that the upstream does not know counts as ended only with `unknownMeansGone`. Rejects when the upstream cannot be
 * reached or refuses. Can be repeated.
 */
export async function closeJob(
  deps: Pick<WorkerDeps, "stores" | "clock">,
  provider: JobProvider,
  batchId: string,
  { unknownMeansGone, signal }: { unknownMeansGone: boolean; signal: AbortSignal },
): Promise<boolean> {
  const { upstreamJobs, batches } = deps.stores.read;
  const job = await upstreamJobs.ofBatch(batchId);
  const batch = await batches.byId(batchId);
  if (!job || job.closedAtMs !== null || !batch || !isTerminal(batch.status)) return true;
  if (batch.provider !== provider.name) return true;
  const name = job.upstreamName ?? (await provider.find(job.jobId, inTime(signal)));
  if (name !== null) await cancelOrSeeEnded(provider, name, signal);
  else if (!unknownMeansGone) return false;
  await deps.stores.write((tx) => tx.upstreamJobs.close(batchId, deps.clock.nowMs()));
  return true;
}

/** Upstreams refuse to cancel an ended job; then the refusal does not matter. */
async function cancelOrSeeEnded(provider: JobProvider, name: string, signal: AbortSignal): Promise<void> {
  try {
    await provider.cancel(name, inTime(signal));
  } catch (error) {
    const status = await provider.poll(name, inTime(signal)).catch(() => null);
    if (status === null || status.state === "running") throw error;
  }
}

const inTime = (signal: AbortSignal) => AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
