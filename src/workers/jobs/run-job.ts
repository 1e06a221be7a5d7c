import type { ItemError } from "../../contract/statuses.ts";
import {
  addUsage,
  failItem,
  finishItem,
  type LeasedItem,
  unknownOutcome,
} from "../../domain/batches/finish-item.ts";
import { EVERY_MODEL } from "../../domain/health/provider-health.ts";
import { endJob, FORGOTTEN_MS, GIVE_UP_MS, isAtWork, unnamedJobs } from "../../domain/jobs/job-rules.ts";
import { isPaid } from "../../domain/models.ts";
import type { JobStep, UpstreamJobRecord } from "../../domain/ports/batches.ts";
import {
  type JobResult,
  ProviderError,
  type Trouble,
  type UpstreamJob,
} from "../../domain/ports/image-provider.ts";
import { linkSignals } from "../../kernel/signals.ts";
import { inspectOutput } from "../image-request.ts";
import { createAgain, createJob, findJobInTime, findLostJob, type JobWork, waitAfter } from "./send-job.ts";
import { uploadInput } from "./upload-input.ts";

/** A job is polled less often the older it is. */
const LONGEST_POLL_MS = 300_000;

/** A refusal counts from this try on, after about ten minutes: gateways err, too. */
const MOST_REFUSED = 8;
/** So often are results fetched that end early, each time after twice the pause: for a quarter of an hour. */
const MOST_SHORT = 6;

/**
 * Fetches the results of an ended job and records each; a job that has failed may have some. Then the rest of its items
 * fails. After a restart it goes on with the items that have no outcome.
 */
async function recordResults(work: JobWork, job: UpstreamJobRecord): Promise<void> {
  const { deps, provider, downloads, jobId } = work;
  const { stores, clock } = deps;
  const name = job.upstreamName ?? "";
  const isTooLate = () => clock.nowMs() - (job.sentAtMs ?? job.createdAtMs) > FORGOTTEN_MS;
  let gone: string | null = null;
  for (let tries = 1, short = 0; ; tries++) {
    try {
      gone = await downloads.add(() => fetchResults(work, job));
      if (gone === null || ++short >= MOST_SHORT || isTooLate()) break;
      deps.log.warn("the results of a job are not whole; fetching them again", { job: jobId, why: gone });
      const retryAfterMs = provider.times.pollMs * 2 ** (short - 1);
      const error = new ProviderError("RESULT_MISSING", gone, { trouble: "failing", retryAfterMs });
      await waitAfter(work, error, tries, { mayGiveUp: false });
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      deps.log.warn("the results of a job could not be fetched", { job: jobId, error: error.message });
      gone = error.message;
      if (isFinal(error, tries) || isTooLate()) break;
      await waitAfter(work, error, tries, { mayGiveUp: false });
    }
  }
  const other = await findAnother(work, job);
  const now = (await stores.read.upstreamJobs.byId(jobId)) ?? job;
  const endedNames = [...now.endedNames, name];
  if (other) {
    const names = { upstreamName: other.name, endedNames, state: null, polledAtMs: null, endedAtMs: null };
    await stores.write((tx) => tx.upstreamJobs.update(jobId, { step: "running", ...names }));
  } else await failRest(work, now, restError(job, gone), { upstreamName: null, endedNames });
}

/** Whether a refusal means that the results no longer exist. In the first tries it does not. Other failures may pass. */
function isFinal({ upstreamStatus, trouble }: ProviderError, tries: number): boolean {
  const isRefused =
    upstreamStatus !== null && (trouble === null || trouble === "no-model" || trouble === "forbidden");
  return isRefused && tries >= MOST_REFUSED;
}

/**
 * Looks for the second job that may exist after a lost answer: it may have results that this one did not return.
 */
async function findAnother(work: JobWork, job: UpstreamJobRecord): Promise<UpstreamJob | null> {
  const isWhole = async () => (await work.deps.stores.read.items.ofJob(job.id)).length === 0;
  return unnamedJobs(job) === 0 || (await isWhole()) ? null : findJobInTime(work, job);
}

function restError(job: UpstreamJobRecord, gone: string | null): ItemError & { isOfJob: boolean } {
  const source = "provider";
  const isOfJob = job.state !== "succeeded";
  const lost =
    gone && `The results of the upstream's job could not be fetched, and may have been billed: ${gone}`;
  if (!isOfJob) {
    const message = lost ?? "The upstream's job ended without a result for this item.";
    return { code: lost ? "OUTCOME_UNKNOWN" : "RESULT_MISSING", message, source, isOfJob };
  }
  const message = [job.said ?? "The upstream ended the job.", ...(lost ? [lost] : [])].join(" ");
  // Nobody knows what became of a job that has not ended.
  const isLost = lost !== null || job.state === null;
  return { code: isLost ? "OUTCOME_UNKNOWN" : "PROVIDER_ITEM_FAILED", message, source, isOfJob };
}

/**
 * Ends a job: its items without a result fail. `names` change in the same transaction. An error of which nobody knows whether the
 * images were made is no failure of the job. Who had the job stopped has decided already about images that it may have made.
 */
async function failRest(
  { deps, batch, provider }: JobWork,
  job: UpstreamJobRecord,
  { isOfJob, ...why }: ItemError & { isOfJob: boolean },
  names?: Pick<UpstreamJobRecord, "upstreamName" | "endedNames">,
): Promise<void> {
  const { stores, clock, ids, feed } = deps;
  const isLost = why.code === "OUTCOME_UNKNOWN" && isPaid(provider) && !isStopped(job, provider.times);
  const plain = isOfJob ? "PROVIDER_ITEM_FAILED" : "RESULT_MISSING";
  const code = why.code === "OUTCOME_UNKNOWN" ? plain : why.code;
  const error = isLost ? unknownOutcome(why) : { ...why, code };
  const end = {
    error,
    isOfJob: isOfJob && !isLost,
    isKnown: why.code !== "OUTCOME_UNKNOWN" && unnamedJobs(job) === 0,
    nowMs: clock.nowMs(),
    leaseToken: ids.leaseToken(),
  };
  const ended = await stores.write(async (tx) => {
    await tx.lock("batch", batch.id);
    if (names) await tx.upstreamJobs.update(job.id, names);
    return endJob(tx, batch, job, end);
  });
  for (const customId of ended) feed.publish({ type: "item", batchId: batch.id, customId, status: "failed" });
}

/** Returns why results are missing that the upstream has; null when there are none. */
async function fetchResults(work: JobWork, job: UpstreamJobRecord): Promise<string | null> {
  const { deps, provider, batch, model, jobId, signal } = work;
  const { stores, ids, log } = deps;
  const leaseToken = ids.leaseToken();
  const items = await stores.write(async (tx) => {
    await tx.lock("batch", batch.id);
    return tx.items.leaseJob(jobId, leaseToken);
  });
  const waiting = new Map(items.map((item) => [item.customId, { ...item, leaseToken }]));
  const seen = new Set<string>();
  let short: string | null = null;
  try {
    for await (const result of provider.results(job.upstreamName ?? "", model, signal)) {
      if ("unreadable" in result) {
        log.warn("a part of a job's results cannot be read", { job: jobId, why: result.unreadable });
        continue;
      }
      if ("endsEarly" in result) {
        short = result.endsEarly;
        continue;
      }
      // The job has ended before this request was run: it fails with the reason of the job.
      if ("error" in result && result.error.code === "RESULT_MISSING" && job.state !== "succeeded") continue;
      const { key } = result;
      const item = waiting.get(key);
      if (item && !seen.has(key)) await recordResult(work, item, result);
      else if (seen.has(key))
        log.warn("a job has two results for one item; the first counts", { job: jobId, key });
      else if ((await stores.read.items.byCustomId(batch.id, key))?.jobId !== jobId) {
        log.warn("a job has a result for an item that it was not given", { job: jobId, key });
        continue;
      }
      seen.add(key);
    }
  } finally {
    const results = Math.max(job.results, seen.size);
    await stores.write((tx) => tx.upstreamJobs.update(jobId, { results }));
  }
  const missing = [...waiting.keys()].filter((key) => !seen.has(key));
  if (missing.length > 0 && short !== null) return short;
  if (missing.length > 0 && job.state === "succeeded")
    log.warn("a job ended without results for some of its items", { job: jobId, missing: missing.length });
  return null;
}

/** How often an item is asked for in jobs whose upstream had no room or failed for it. */
const MOST_TRIES = 3;
/** What an upstream says of a request for which it made nothing, and which may succeed in another job. */
const NOT_MADE: readonly (Trouble | null)[] = ["limited", "failing"];

/** A result without a usable image is a failure of the item. */
async function recordResult(
  work: JobWork,
  item: LeasedItem,
  result: Extract<JobResult, { key: string }>,
): Promise<void> {
  const { deps, provider, batch, model } = work;
  const { stores, clock, feed } = deps;
  if ("error" in result && NOT_MADE.includes(result.error.trouble) && item.attempts + 1 < MOST_TRIES) {
    const usage = addUsage(item.usage, result.error.usage);
    const marks = { failedAt: null, maybePaid: "no" } as const;
    const again = { notBeforeMs: 0, attempts: item.attempts + 1, usage, ...marks };
    const { isOurs } = await stores.write(async (tx) => {
      await tx.lock("batch", batch.id);
      const given = await tx.items.giveBack(item.id, item.leaseToken, again);
      if (given.isOurs) await tx.items.releaseFromJob([item.id]);
      return given;
    });
    if (isOurs) work.onReleased();
    return;
  }
  const nowMs = () => clock.nowMs();
  let status: "success" | "failed" | null;
  try {
    if ("error" in result) throw result.error;
    const made = await inspectOutput(deps, { provider, executedModel: model }, item, result.output);
    status = await finishItem(deps, batch, item, made, nowMs);
  } catch (error) {
    if (!(error instanceof ProviderError)) throw error;
    status = await failItem(stores, batch, item, error, nowMs());
  }
  if (status === "success") batch.waitingSinceMs = null;
  const { batchId, customId } = item;
  if (status) feed.publish({ type: "item", batchId, customId, status });
}

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
    const job = await withPastTimes(work, await stores.read.upstreamJobs.byId(jobId));
    signal.throwIfAborted();
    const now = await stores.read.batches.byId(batch.id);
    if (!job || !isAtWork(job) || now?.status !== "running") return;
    // Nothing is sent for a batch that is being cancelled; what was sent is marked.
    if (now.cancelAskedAtMs !== null && job.stopAskedAtMs === null) return;
    try {
      await STEPS[job.step as keyof typeof STEPS](work, job);
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      await giveUp(work, error);
    }
  }
}

/** The upstream's list is looked through for so long before a job whose own time is not known. */
const LOOK_BACK_MS = 24 * 3_600_000;

/**
 * Corrects the times of a job that lie in the future, because the clock was ahead: everything that waits for them would wait
 * until then.
 */
async function withPastTimes({ deps, jobId }: JobWork, job: UpstreamJobRecord | null) {
  if (job === null) return null;
  const nowMs = deps.clock.nowMs();
  const change: Partial<UpstreamJobRecord> = {};
  if (job.createdAtMs > nowMs) change.createdAtMs = nowMs - LOOK_BACK_MS;
  for (const name of ["uploadedAtMs", "sentAtMs", "polledAtMs", "stopAskedAtMs"] as const)
    if ((job[name] ?? 0) > nowMs) change[name] = nowMs;
  if (Object.keys(change).length === 0) return job;
  await deps.stores.write((tx) => tx.upstreamJobs.update(jobId, change));
  return { ...job, ...change };
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
  const isLost = isSent || code === "OUTCOME_UNKNOWN";
  const error = { code: isLost ? ("OUTCOME_UNKNOWN" as const) : code, message: message + billed, source };
  await failRest(work, job, { ...error, isOfJob: true });
}

/** Whether a person has had the job stopped, and not its time limit. */
function isStopped(
  { stopAskedAtMs, sentAtMs, createdAtMs }: UpstreamJobRecord,
  { jobMs }: Pick<JobWork["provider"]["times"], "jobMs">,
): boolean {
  return stopAskedAtMs !== null && stopAskedAtMs - (sentAtMs ?? createdAtMs) < jobMs;
}

/**
 * Polls a job until the upstream has ended it. A job that takes too long, or that is to be stopped, is cancelled. From the
 * first request to stop it, the upstream has an hour to end it, over any number of starts. Troubles of polling never end a
 * job before that.
 */
async function awaitJob(work: JobWork, job: UpstreamJobRecord): Promise<void> {
  const { deps, provider, jobId } = work;
  const { stores, clock, log } = deps;
  const { times } = provider;
  const name = job.upstreamName ?? "";
  const sentAtMs = job.sentAtMs ?? job.createdAtMs;
  let polledAtMs: number | null = null;
  let isStopAsked = false;
  let stopRefusal: unknown = null;
  let { stopAskedAtMs } = job;
  let missingSinceMs: number | null = null;
  for (;;) {
    const nowMs = clock.nowMs();
    if (work.stopAsked.signal.aborted)
      stopAskedAtMs ??= (await stores.read.upstreamJobs.byId(jobId))?.stopAskedAtMs ?? nowMs;
    const isStuck = stopAskedAtMs !== null || nowMs - sentAtMs >= times.jobMs;
    const pauseMs = isStuck
      ? pauseAfterStop(times.pollMs, nowMs - (stopAskedAtMs ?? nowMs))
      : Math.max(times.pollMs, Math.min(LONGEST_POLL_MS, (nowMs - sentAtMs) / 20));
    if (isStuck && stopAskedAtMs === null) {
      stopAskedAtMs = nowMs;
      await stores.write((tx) => tx.upstreamJobs.update(jobId, { stopAskedAtMs: nowMs }));
    }
    if (isStuck && !isStopAsked) {
      stopRefusal = await askToStop(work, name);
      isStopAsked = stopRefusal === null;
    }
    const isDue = await untilDue(work, polledAtMs === null ? nowMs : polledAtMs + pauseMs, !isStuck);
    if (!isDue) continue;
    const seen = await poll(work, name);
    polledAtMs = clock.nowMs();
    const isMissing = seen instanceof ProviderError && seen.upstreamStatus === 404;
    missingSinceMs = isMissing ? (missingSinceMs ?? polledAtMs) : null;
    if (!(seen instanceof ProviderError)) {
      if (seen.refusal && stopAskedAtMs === null)
        return createAgain(work, job, { ...seen, name }, seen.refusal);
      await record(work, seen, polledAtMs);
      if (seen.state !== "running") return;
    } else log.debug("a job could not be polled; trying again", { job: jobId, error: seen.message });
    // Upstreams refuse to stop an ended job; then the refusal does not matter.
    if (stopRefusal !== null) work.onStopRefused(stopRefusal);
    const end = reasonToEnd(work, { isMissing, missingSinceMs, nowMs: polledAtMs, sentAtMs, stopAskedAtMs });
    if (end === null) continue;
    const facts = { step: "ended", state: null, said: end, endedAtMs: polledAtMs } as const;
    await stores.write((tx) => tx.upstreamJobs.update(jobId, facts));
    return;
  }
}

/** Somebody may wait for the end of a job that is to be stopped, which mostly comes at once. */
function pauseAfterStop(pollMs: number, sinceMs: number): number {
  return Math.min(pollMs, Math.max(1000, sinceMs / 10));
}

/**
 * Waits until a job is due, and until the upstream may be asked. While the job `isWanted`, a request to stop it ends the wait:
 * then it returns false.
 */
async function untilDue(
  { deps: { clock, health }, provider, signal, stopAsked }: JobWork,
  dueMs: number,
  isWanted: boolean,
): Promise<boolean> {
  for (;;) {
    const nowMs = clock.nowMs();
    const block = health.blockOf(provider, EVERY_MODEL);
    const freeMs = block ? Math.min(block.untilMs ?? Number.POSITIVE_INFINITY, nowMs + LONGEST_SLEEP_MS) : 0;
    const sleepMs = Math.max(dueMs, freeMs) - nowMs;
    if (sleepMs <= 0) return true;
    if (!isWanted) await clock.sleep(sleepMs, signal);
    else {
      const { signal: either, unlink } = linkSignals(signal, stopAsked.signal);
      await clock
        .sleep(sleepMs, either)
        .catch(() => {})
        .finally(unlink);
      signal.throwIfAborted();
      if (stopAsked.signal.aborted) return false;
    }
  }
}

/** Of the errors of polling, only those of the credential count for the health of the provider. */
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
  const isLate = stopAskedAtMs - sentAtMs >= times.jobMs;
  const before = isLate ? ` within ${Math.round(times.jobMs / 3_600_000)} hours, nor` : "";
  return `The upstream did not end the job${before} after it was asked to stop it. The images may be billed.`;
}

/** Returns why the upstream could not be asked; null when it was. */
async function askToStop({ deps, provider, jobId, signal }: JobWork, name: string): Promise<unknown> {
  try {
    await provider.cancel(name, signal);
    deps.log.warn("the upstream was asked to stop a job", { job: jobId });
    return null;
  } catch (error) {
    signal.throwIfAborted();
    deps.log.warn("the upstream could not be asked to stop a job", {
      job: jobId,
      error: String(error),
    });
    return error;
  }
}

function record(work: JobWork, { state, said }: UpstreamJob, polledAtMs: number): Promise<void> {
  const { deps, jobId } = work;
  const end = state === "running" ? {} : ({ step: "ended", endedAtMs: polledAtMs } as const);
  return deps.stores.write((tx) => tx.upstreamJobs.update(jobId, { state, said, polledAtMs, ...end }));
}
