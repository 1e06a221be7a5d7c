import type { ItemError } from "../../contract/statuses.ts";
import { failLeased } from "../batches/finish-item.ts";
import type { Repositories, Transaction } from "../ports/stores.ts";
import type { UpstreamJobRecord } from "../ports/upstream-jobs.ts";
import type { BatchError, BatchRecord } from "../records.ts";
import { isAtWork } from "./job-rules.ts";

/** Why the items of a job without a result fail. `isOfJob`: because the job as a whole has failed. */
interface JobEnd {
  error: ItemError;
  isOfJob: boolean;
  nowMs: number;
  /** Holds the items while they fail. */
  leaseToken: string;
}

/**
 * Ends a job in a transaction that has locked the batch: its pending items fail. They stay pending when it is the last job of its batch and none
 * of them gave a result, because the batch as a whole fails then (`failureOf`). Returns the custom ids of the items that
 * failed.
 */
export async function endJob(
  tx: Transaction,
  batch: BatchRecord,
  job: UpstreamJobRecord,
  { error, isOfJob, nowMs, leaseToken }: JobEnd,
): Promise<string[]> {
  await tx.upstreamJobs.update(job.id, { step: "done", ...(isOfJob ? { error: error.message } : {}) });
  if ((await failureOf(tx, batch.id)) !== null) return [];
  const failed: string[] = [];
  for (const item of await tx.items.leaseJob(job.id, leaseToken)) {
    const { isOurs } = await failLeased(tx, batch, { ...item, leaseToken }, error, nowMs);
    if (isOurs) failed.push(item.customId);
  }
  return failed;
}

/** Returns why a batch has failed as a whole: all of its jobs have failed, and none gave a result. Null otherwise. */
export async function failureOf(
  read: Pick<Repositories, "upstreamJobs" | "items">,
  batchId: string,
): Promise<BatchError | null> {
  const jobs = await read.upstreamJobs.ofBatch(batchId);
  const [first] = jobs;
  if (!first || jobs.some((job) => isAtWork(job) || job.results > 0 || job.error === null)) return null;
  if ((await read.items.countWithoutJob(batchId)) > 0) return null;
  const message = first.error ?? "";
  return { code: "BATCH_IMAGE_PROVIDER_SUBMIT_FAILED", message, source: "provider" };
}
