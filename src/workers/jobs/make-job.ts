import type { JobProvider } from "../../domain/ports/image-provider.ts";
import type { UpstreamJobRecord } from "../../domain/ports/upstream-jobs.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { WorkerDeps } from "../deps.ts";

/**
 * Makes a job of the next items of a batch. Nothing is sent yet. Returns the id of the job; null when the batch has no
 * items without a job, or has ended.
 */
export function makeJob(
  { stores, ids, clock }: WorkerDeps,
  { name: provider, limits }: JobProvider,
  { id: batchId }: BatchRecord,
): Promise<string | null> {
  return stores.write(async (tx) => {
    if ((await tx.batches.locked(batchId))?.status !== "running") return null;
    const id = `imgbatch-${await tx.upstreamJobs.databaseId()}-${ids.recordId("job")}`;
    const count = await tx.items.assignToJob(batchId, { jobId: id, provider, limit: limits.images });
    if (count === 0) return null;
    await tx.upstreamJobs.insert({ ...NEW, id, batchId, createdAtMs: clock.nowMs() });
    return id;
  });
}

const NEW: Omit<UpstreamJobRecord, "id" | "batchId" | "createdAtMs"> = {
  step: "new",
  hasReferences: false,
  input: null,
  uploadedAtMs: null,
  upstreamName: null,
  endedNames: [],
  creates: 0,
  sentAtMs: null,
  state: null,
  said: null,
  error: null,
  results: 0,
  polledAtMs: null,
  endedAtMs: null,
  closedAtMs: null,
  stopAskedAtMs: null,
};
