import { isAtWork, unnamedJobs } from "../../domain/jobs/job-rules.ts";
import { ProviderError } from "../../domain/ports/image-provider.ts";
import type { JobStep, UpstreamJobRecord } from "../../domain/ports/upstream-jobs.ts";
import { awaitJob } from "./await-job.ts";
import type { JobWork } from "./job-work.ts";
import { failRest, recordResults } from "./record-results.ts";
import { createJob, findLostJob, uploadInput } from "./send-job.ts";

type Step = (work: JobWork, job: UpstreamJobRecord) => Promise<void>;

/** The work of each step. It ends with another step stored. */
const STEPS: Readonly<Record<Exclude<JobStep, "done" | "closed">, Step>> = {
  new: uploadInput,
  uploaded: createJob,
  sent: findLostJob,
  running: awaitJob,
  ended: recordResults,
};

/**
 * Takes an upstream job through its steps until none of its items is pending. Continues where an earlier process
 * stopped. Rejects with the signal's reason when aborted; the job goes on upstream.
 */
export async function runJob(work: JobWork): Promise<void> {
  const { deps, batch, jobId, signal } = work;
  const { stores } = deps;
  for (;;) {
    const job = await stores.read.upstreamJobs.byId(jobId);
    signal.throwIfAborted();
    work.job = job;
    if (!job || !isAtWork(job) || (await stores.read.batches.byId(batch.id))?.status !== "running") return;
    try {
      await STEPS[job.step as keyof typeof STEPS](work, job);
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      await giveUp(work, error);
    }
  }
}

/** The upstream refuses the job, or could not be used for too long. */
async function giveUp(work: JobWork, { code, message, source }: ProviderError): Promise<void> {
  const job = await work.deps.stores.read.upstreamJobs.byId(work.jobId);
  if (!job) return;
  // After requests that were all refused, nothing has a time.
  const isSent = unnamedJobs(job) > 0 && job.sentAtMs !== null;
  const billed =
    isSent && !message.includes("may have been billed")
      ? " Another request was sent, and the images may have been billed."
      : "";
  await failRest(work, job, { code, message: message + billed, source, isOfJob: true });
}
