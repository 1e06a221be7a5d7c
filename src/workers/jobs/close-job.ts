import { isTerminal } from "../../contract/statuses.ts";
import type { JobProvider } from "../../domain/ports/image-provider.ts";
import type { WorkerDeps } from "../deps.ts";

const TIMEOUT_MS = 10_000;

/**
 * Sees to it that an upstream does not work on for a batch that has ended: its job is told to stop, and found first when
 * its name is not known, because the answer to its submission was lost or is still on its way. Answers whether no job
 * can be running any more; an upstream that does not know it yet counts as such only when `unknownMeansGone`.
 * Rejects when the upstream could not be asked or told. Can be repeated.
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

/** Upstreams refuse to cancel what has ended; then the refusal does not matter. */
async function cancelOrSeeEnded(provider: JobProvider, name: string, signal: AbortSignal): Promise<void> {
  try {
    await provider.cancel(name, inTime(signal));
  } catch (error) {
    const status = await provider.poll(name, inTime(signal)).catch(() => null);
    if (status === null || status.state === "running") throw error;
  }
}

const inTime = (signal: AbortSignal) => AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
