import type { ItemError } from "../../contract/statuses.ts";
import { failItem, finishItem, type LeasedItem } from "../../domain/batches/finish-item.ts";
import { askedOf } from "../../domain/batches/item-terms.ts";
import { differences, readOutput } from "../../domain/images/output-images.ts";
import { endJob } from "../../domain/jobs/end-job.ts";
import { FORGOTTEN_MS, unnamedJobs } from "../../domain/jobs/job-rules.ts";
import { type JobResult, ProviderError, type UpstreamJob } from "../../domain/ports/image-provider.ts";
import type { UpstreamJobRecord } from "../../domain/ports/upstream-jobs.ts";
import { findJobInTime, type JobWork, waitAfter } from "./job-work.ts";

/** A refusal counts from this try on, after about ten minutes: gateways err, too. */
const MOST_REFUSED = 8;
/** So often are results fetched that end early, each time after twice the pause: for a quarter of an hour. */
const MOST_SHORT = 6;

/**
 * Fetches the results of an ended job and records each; a job that has failed may have some. Then the rest of its items
 * fails. After a restart it goes on with the items that have no outcome.
 */
export async function recordResults(work: JobWork, job: UpstreamJobRecord): Promise<void> {
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
    return { code: "RESULT_MISSING", message, source, isOfJob };
  }
  const message = [job.said ?? "The upstream ended the job.", ...(lost ? [lost] : [])].join(" ");
  return { code: "PROVIDER_ITEM_FAILED", message, source, isOfJob };
}

/** Ends a job: its items without a result fail. `names` change in the same transaction. */
export async function failRest(
  { deps, batch }: JobWork,
  job: UpstreamJobRecord,
  { isOfJob, ...error }: ItemError & { isOfJob: boolean },
  names?: Pick<UpstreamJobRecord, "upstreamName" | "endedNames">,
): Promise<void> {
  const { stores, clock, ids, feed } = deps;
  const end = { error, isOfJob, nowMs: clock.nowMs(), leaseToken: ids.leaseToken() };
  const failed = await stores.write(async (tx) => {
    await tx.lock("batch", batch.id);
    if (names) await tx.upstreamJobs.update(job.id, names);
    return endJob(tx, batch, job, end);
  });
  for (const customId of failed)
    feed.publish({ type: "item", batchId: batch.id, customId, status: "failed" });
}

/** Returns why results are missing that the upstream has; null when there are none. */
async function fetchResults(work: JobWork, job: UpstreamJobRecord): Promise<string | null> {
  const { deps, provider, batch, jobId, signal } = work;
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
    for await (const result of provider.results(job.upstreamName ?? "", signal)) {
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

/** A result without a usable image is a failure of the item. */
async function recordResult(
  { deps, provider, batch }: JobWork,
  item: LeasedItem,
  result: Extract<JobResult, { key: string }>,
): Promise<void> {
  const { stores, clock, inspector, feed } = deps;
  const nowMs = () => clock.nowMs();
  let status: "success" | "failed" | null;
  try {
    if ("error" in result) throw result.error;
    const images = await readOutput(result.output, inspector, provider);
    const notes = provider.upstream ? differences(images, askedOf(batch, item)) : [];
    const made = { ...result.output, images, notes: [...(result.output.notes ?? []), ...notes] };
    status = await finishItem(deps, batch, item, made, nowMs);
  } catch (error) {
    if (!(error instanceof ProviderError)) throw error;
    status = await failItem(stores, batch, item, error, nowMs());
  }
  if (status === "success") batch.waitingSinceMs = null;
  const { batchId, customId } = item;
  if (status) feed.publish({ type: "item", batchId, customId, status });
}
