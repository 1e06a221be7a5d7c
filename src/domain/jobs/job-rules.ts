import { ImgbatchError } from "../../contract/errors.ts";
import type { ItemError } from "../../contract/statuses.ts";
import type { ShownJob } from "../../contract/waiting.ts";
import type { Ids } from "../../kernel/ids.ts";
import { failLeased } from "../batches/finish-item.ts";
import { startIn } from "../batches/lifecycle.ts";
import type { JobStep, Repositories, Stores, Transaction, UpstreamJobRecord } from "../ports/stores.ts";
import type { BatchError, BatchRecord } from "../records.ts";

/**
 * Fails the pending items of a job that has ended, in a transaction that has locked the batch. They stay pending when it is the
 * last job of its batch and none of them gave a result, because the batch as a whole fails then (`failureOf`), and when the
 * batch is being cancelled, which fails them. `leaseToken` holds the items while they fail. Returns the custom ids of the
 * items that failed.
 */
export async function failItemsOf(
  tx: Transaction,
  batch: BatchRecord,
  jobId: string,
  { error, nowMs, leaseToken }: { error: ItemError; nowMs: number; leaseToken: string },
): Promise<string[]> {
  if ((await tx.batches.locked(batch.id))?.cancelAskedAtMs != null) return [];
  if ((await failureOf(tx, batch.id)) !== null) return [];
  const failed: string[] = [];
  for (const item of await tx.items.leaseJob(jobId, leaseToken)) {
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

const HOUR_MS = 3_600_000;

/** Upstreams forget files and jobs after 48 hours. Older ones are neither used nor created again. */
export const FORGOTTEN_MS = 47 * HOUR_MS;
/** How long an upstream is told to stop a job, and how long a job is looked for that may have been created. */
export const GIVE_UP_MS = HOUR_MS;

/** Returns how many jobs may exist upstream whose names are not known. */
export function unnamedJobs({ creates, upstreamName, endedNames }: UpstreamJobRecord): number {
  return Math.max(0, creates - endedNames.length - (upstreamName === null ? 0 : 1));
}

/** Returns how many requests to create the job may have made one that costs something. */
export function paidCreates({ creates, refusals }: Pick<UpstreamJobRecord, "creates" | "refusals">): number {
  return creates - refusals;
}

/** Whether the upstream may still make images for the job. */
export function isAtWork({ step }: UpstreamJobRecord): boolean {
  return step !== "done" && step !== "closed";
}

/** Whether images of a job may be billed although none of its results is known. */
export function mayBeBilled(job: UpstreamJobRecord): boolean {
  return isAtWork(job) && paidCreates(job) > 0;
}

/** The work on a job in each step, in words. A running job is in the state that the upstream says. */
const WORDS: Readonly<Record<JobStep, string>> = {
  new: "uploading",
  uploaded: "creating",
  sent: "looking for the job",
  running: "running",
  ended: "fetching results",
  fetched: "fetching results",
  done: "closing",
  closed: "closed",
};

/** Returns a job of a batch of which nothing is sent yet. */
export function newJob(id: string, batch: Pick<BatchRecord, "id">, nowMs: number): UpstreamJobRecord {
  return {
    id,
    batchId: batch.id,
    createdAtMs: nowMs,
    step: "new",
    hasReferences: false,
    input: null,
    uploadedAtMs: null,
    upstreamName: null,
    endedNames: [],
    creates: 0,
    refusals: 0,
    refusedSinceMs: null,
    sentAtMs: null,
    state: null,
    said: null,
    error: null,
    results: 0,
    failures: 0,
    polledAtMs: null,
    missingSinceMs: null,
    gone: null,
    endedAtMs: null,
    closedAtMs: null,
    stopAskedAtMs: null,
    isStopTold: false,
  };
}

/** Shows a job with its age. */
export function showJob(job: UpstreamJobRecord): ShownJob {
  const { id, step, upstreamName: name, said, createdAtMs, sentAtMs } = job;
  const state = step === "running" && said ? said : WORDS[step];
  return { id, name, state, said, createdAtMs: sentAtMs ?? createdAtMs };
}

/**
 * Marks the jobs of a batch that may exist: whoever works on them asks the upstream to stop them, waits until it has ended
 * them, and fetches what they have made. The transaction has locked the batch. Returns the jobs at work that no request has
 * asked for. Can be repeated.
 */
export async function markStops(
  tx: Transaction,
  batchId: string,
  nowMs: number,
): Promise<UpstreamJobRecord[]> {
  const unsent: UpstreamJobRecord[] = [];
  for (const job of (await tx.upstreamJobs.ofBatch(batchId)).filter(isAtWork)) {
    if (paidCreates(job) === 0) {
      unsent.push(job);
      continue;
    }
    const isUnsent = job.step === "new" || job.step === "uploaded";
    // An earlier request may have created it, although the upstream said that it took none.
    const lookFor = isUnsent ? ({ step: "sent", sentAtMs: job.sentAtMs ?? nowMs } as const) : {};
    const stopAskedAtMs = job.stopAskedAtMs ?? nowMs;
    await tx.upstreamJobs.update(job.id, { stopAskedAtMs, ...lookFor });
  }
  return unsent;
}

/** Why images fail of which no request has left. */
const UNSENT: ItemError = {
  code: "CANCELLED",
  message: "The batch was ended before the upstream was asked for this image.",
  source: "service",
};

/**
 * Decides that no more images of a batch come from jobs of its upstream. Images that no request has asked for fail at once.
 * Jobs that may exist are stopped: see `markStops`. The batch ends after the last of them. Returns the custom ids of the
 * images that have failed. Can be repeated; changes nothing about a batch that has ended. Throws `BATCH_IMAGE_NOT_IN_JOBS` for a
 * batch that was made with another API.
 */
export async function endJobs(
  { stores, ids }: { stores: Stores; ids: Pick<Ids, "leaseToken" | "recordId"> },
  batchId: string,
  nowMs: number,
): Promise<string[]> {
  return stores.write(async (tx) => {
    await startIn(tx, batchId, nowMs);
    const batch = await tx.batches.locked(batchId);
    if (batch !== null && batch.source !== "batch") throw new ImgbatchError("BATCH_IMAGE_NOT_IN_JOBS");
    if (batch?.status !== "running") return [];
    const end = { error: UNSENT, nowMs, leaseToken: ids.leaseToken() };
    const failed: string[] = [];
    for (const { id } of await markStops(tx, batchId, nowMs)) {
      await tx.upstreamJobs.update(id, { step: "done" });
      failed.push(...(await failItemsOf(tx, batch, id, end)));
    }
    const id = `imgbatch-${await tx.upstreamJobs.databaseId()}-${ids.recordId("job")}`;
    const items = { jobId: id, provider: batch.provider, limit: batch.itemCount };
    if ((await tx.items.assignToJob(batchId, items)) === 0) return failed;
    await tx.upstreamJobs.insert({ ...newJob(id, batch, nowMs), step: "done" });
    return [...failed, ...(await failItemsOf(tx, batch, id, end))];
  });
}
