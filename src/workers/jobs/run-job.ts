import { EVERY_MODEL } from "../../domain/health/transitions.ts";
import { FORGOTTEN_MS, GIVE_UP_MS, isAtWork, pollPauseMs, unnamedJobs } from "../../domain/jobs/job-rules.ts";
import { ProviderError, type UpstreamJob } from "../../domain/ports/image-provider.ts";
import type { JobStep, UpstreamJobRecord } from "../../domain/ports/upstream-jobs.ts";
import type { JobWork } from "./job-work.ts";
import { failRest, recordResults } from "./record-results.ts";
import { createJob, findLostJob, uploadInput } from "./send-job.ts";

/** Upper bound of a sleep while the upstream may not be asked. */
const LONGEST_SLEEP_MS = 60_000;

type Step = (work: JobWork, job: UpstreamJobRecord) => Promise<void>;

/**
 * The work of each step. It ends with another step stored, so that another process can go on:
 *
 * | step       | event                                                  | next                               |
 * |------------|--------------------------------------------------------|------------------------------------|
 * | `new`      | its input is uploaded                                  | `uploaded`                         |
 * | `new`      | none of its items could be built                       | `done`                             |
 * | `uploaded` | the upstream may have forgotten the input              | `new`                              |
 * | `uploaded` | its batch still runs, and a request is about to leave  | `sent`, stored before the request  |
 * | `uploaded` | a list has a job of an earlier request                 | `running`                          |
 * | `sent`     | the upstream returns a name, or a list has the job     | `running`                          |
 * | `sent`     | the upstream says that it took nothing                 | `uploaded`                         |
 * | `sent`     | no answer, and no list has the job for long            | `uploaded` once more, then `done`  |
 * | `running`  | the upstream has ended or lost the job, or never will  | `ended`                            |
 * | `ended`    | results are missing, and a list has another job        | `running`, with the other job      |
 * | `ended`    | the results are recorded, the other items have failed  | `done`                             |
 * | any before | the upstream refuses, or cannot be used for too long   | `done`, and its items have failed  |
 * | any        | it is `done` or its batch has ended: see `closeJob`    | `closed`                           |
 */
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

/**
 * Polls a job until the upstream has ended it. A job that takes too long is cancelled; from the first request to stop it,
 * the upstream has an hour to end it, over any number of starts. Troubles of polling never end a job before that.
 */
async function awaitJob(work: JobWork, job: UpstreamJobRecord): Promise<void> {
  const { deps, provider, jobId } = work;
  const { stores, clock, log } = deps;
  const { times } = provider;
  const name = job.upstreamName ?? "";
  const sentAtMs = job.sentAtMs ?? job.createdAtMs;
  let polledAtMs: number | null = null;
  let isStopAsked = false;
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
    if (isStuck && !isStopAsked) isStopAsked = await askToStop(work, name);
    await untilDue(work, polledAtMs === null ? nowMs : polledAtMs + pauseMs);
    const seen = await poll(work, name);
    polledAtMs = clock.nowMs();
    const isMissing = seen instanceof ProviderError && seen.upstreamStatus === 404;
    missingSinceMs = isMissing ? (missingSinceMs ?? polledAtMs) : null;
    if (!(seen instanceof ProviderError)) {
      await record(work, seen, polledAtMs);
      if (seen.state !== "running") return;
    } else log.debug("a job could not be polled; trying again", { job: jobId, error: seen.message });
    const end = reasonToEnd(work, { isMissing, missingSinceMs, nowMs: polledAtMs, sentAtMs, stopAskedAtMs });
    if (end === null) continue;
    const facts = { step: "ended", state: "expired", said: end, endedAtMs: polledAtMs } as const;
    await stores.write((tx) => tx.upstreamJobs.update(jobId, facts));
    return;
  }
}

/** Waits until a job is due, and until the upstream may be asked. */
async function untilDue(
  { deps: { clock, health }, provider, signal }: JobWork,
  dueMs: number,
): Promise<void> {
  for (;;) {
    const nowMs = clock.nowMs();
    const block = health.blockOf(provider, EVERY_MODEL);
    const freeMs = block ? Math.min(block.untilMs ?? Number.POSITIVE_INFINITY, nowMs + LONGEST_SLEEP_MS) : 0;
    const sleepMs = Math.max(dueMs, freeMs) - nowMs;
    if (sleepMs <= 0) return;
    await clock.sleep(sleepMs, signal);
  }
}

/** Only what concerns the credential counts for the health of the provider. Polling is not making. */
async function poll({ deps, provider, signal }: JobWork, name: string): Promise<UpstreamJob | ProviderError> {
  try {
    return await provider.poll(name, signal);
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof ProviderError)) throw error;
    const ticket = deps.health.begin(provider, EVERY_MODEL);
    if (error.trouble === null) ticket?.dropped();
    else await ticket?.failed(error, "polling a job");
    return error;
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

async function askToStop({ deps, provider, jobId, signal }: JobWork, name: string): Promise<boolean> {
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
