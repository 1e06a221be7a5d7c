import { failLeased } from "../../domain/batches/finish-item.ts";
import { FORGOTTEN_MS } from "../../domain/jobs/job-rules.ts";
import { isPaid } from "../../domain/models.ts";
import type { JobStep, UpstreamJobRecord } from "../../domain/ports/batches.ts";
import { StorageUnavailable } from "../../domain/ports/blob-store.ts";
import { type JobItem, ProviderError, type Trouble } from "../../domain/ports/image-provider.ts";
import type { Transaction } from "../../domain/ports/stores.ts";
import type { ItemRecord } from "../../domain/records.ts";
import { unlessAborted } from "../../kernel/signals.ts";
import { OwnerLost } from "../advance-batch.ts";
import { buildImageRequest } from "../image-request.ts";
import { endWaiting, findJob, findJobInTime, type JobWork, ticketFor, waitAfter } from "./job-work.ts";

const BEING_CREATED: readonly JobStep[] = ["uploaded", "sent"];

/** No job is created more often: of two lost answers, both jobs may be paid. */
const MOST_CREATES = 2;
/** How long the request may take that stops a job which was created too late. */
const STOP_MS = 30_000;
/** Why the items of a job fail if nobody knows whether the job exists. */
const LOST =
  "The answer of the upstream to the creation of the job was lost, and its list does not have the job. The images may have been billed.";

/**
 * Uploads the input of a job. An item that cannot be built fails alone. Items that do not fit into the job go back to
 * their batch. Rejects with `ProviderError` when the upstream refuses the input.
 */
export async function uploadInput(work: JobWork, job: UpstreamJobRecord): Promise<void> {
  const { deps, provider, jobId, signal, uploads } = work;
  const { stores, clock } = deps;
  const items = await buildItems(work);
  const hasReferences = hasAny(items[0]);
  if (items.length === 0) {
    await stores.write((tx) => tx.upstreamJobs.update(jobId, { step: "done" }));
    return;
  }
  for (let tries = 1; ; tries++) {
    const ticket = await ticketFor(work);
    try {
      const input = await uploads.add(() => provider.upload(jobId, items, signal));
      await ticket.succeeded();
      const uploadedAtMs = clock.nowMs();
      await stores.write((tx) =>
        tx.upstreamJobs.update(jobId, { step: "uploaded", input, uploadedAtMs, hasReferences }),
      );
      if (job.input !== null && job.input !== input)
        await provider.discard(job.input, signal).catch(() => {});
      return;
    } catch (error) {
      if (!(error instanceof ProviderError)) {
        ticket.dropped();
        throw error;
      }
      await ticket.failed(error, jobId);
      if (!error.retryable) throw error;
      await waitAfter(work, error, tries);
    }
  }
}

const hasAny = (item: JobItem | undefined) => (item?.request.references.length ?? 0) > 0;

/** The requests of the job's items, as many as fit. Only their texts are in memory. */
async function buildItems(work: JobWork): Promise<JobItem[]> {
  const { deps, provider, batch, jobId, model } = work;
  const items: JobItem[] = [];
  const others: number[] = [];
  let bytes = 0;
  for (const item of await deps.stores.read.items.ofJob(jobId)) {
    try {
      const references = await deps.stores.read.references.ofSource(item.batchId, item.sourceIndex);
      const request = await buildImageRequest(deps, batch, item, model, references);
      const line = { key: item.customId, request };
      const sum = bytes + (await provider.lineBytes(line));
      const fits = items.length === 0 || sum <= provider.limits.bytes;
      if (!fits || (provider.splitsReferences && items[0] && hasAny(items[0]) !== hasAny(line))) {
        others.push(item.id);
        continue;
      }
      bytes = sum;
      items.push(line);
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      await failItem(work, item, error);
    }
  }
  if (others.length > 0) {
    await deps.stores.write(async (tx) => {
      await tx.lock("batch", batch.id);
      await tx.items.releaseFromJob(others);
    });
    work.onReleased();
  }
  return items;
}

async function failItem({ deps, batch, jobId }: JobWork, item: ItemRecord, error: ProviderError) {
  const { stores, ids, clock, feed } = deps;
  const leaseToken = ids.leaseToken();
  const { isOurs } = await stores.write(async (tx) => {
    await tx.lock("batch", batch.id);
    await tx.items.leaseJob(jobId, leaseToken);
    return failLeased(tx, batch, { ...item, leaseToken }, error, clock.nowMs());
  });
  const { batchId, customId } = item;
  if (isOurs) feed.publish({ type: "item", batchId, customId, status: "failed" });
}

/**
 * Creates the job of an uploaded input. That the request is sent is stored before. After a lost answer the job is looked
 * for; so it is before the next request after the upstream has said that it takes none now. Rejects with `ProviderError`
 * when the upstream refuses the job.
 */
export async function createJob(work: JobWork, job: UpstreamJobRecord): Promise<void> {
  const { deps, provider, jobId, model, signal } = work;
  const { stores, clock } = deps;
  if (job.input === null || clock.nowMs() - (job.uploadedAtMs ?? 0) > FORGOTTEN_MS) {
    await stores.write((tx) => tx.upstreamJobs.update(jobId, { step: "new" }));
    return;
  }
  if (await isMadeAlready(work, job)) return;
  const ticket = await ticketFor(work);
  const isSent = await markSent(work, job).catch(async (error) => {
    ticket.dropped();
    // Nothing was sent. With the mark, nobody would know that for a long time.
    for (let last = error; StorageUnavailable.mayHaveHappened(last); )
      last = await stores.write((tx) => unmarkSent(tx, jobId, job)).catch((again) => again);
    throw error;
  });
  if (!isSent) {
    ticket.dropped();
    signal.throwIfAborted();
    return;
  }
  let refusal: ProviderError;
  work.isCreating = true;
  try {
    const { input, hasReferences } = job;
    const name = await provider.create({ jobId, model, input, hasReferences }, work.abandoned);
    await stores
      .write((tx) => markCreated(tx, jobId, name, clock.nowMs()))
      .catch(async (error) => {
        if (error instanceof OwnerLost) await stopLate(work, name);
        throw error;
      });
    await ticket.succeeded();
    await endWaiting(work);
    return;
  } catch (error) {
    if (!(error instanceof ProviderError)) {
      ticket.dropped();
      warnOfLostAnswer(work, error);
      return;
    }
    await ticket.failed(error, jobId);
    refusal = error;
  } finally {
    work.isCreating = false;
  }
  if (mayBeCreated(refusal) && !isOverloaded(refusal)) {
    warnOfLostAnswer(work, refusal.message);
    return;
  }
  const creates = isOverloaded(refusal) ? Math.max(1, job.creates) : job.creates;
  await stores.write((tx) => unmarkSent(tx, jobId, { ...job, creates }));
  if (!refusal.retryable) throw refusal;
  await waitAfter(work, refusal, 1);
}

/** Looks for a job that an earlier request may have made although the upstream said that it takes none. */
async function isMadeAlready(work: JobWork, job: UpstreamJobRecord): Promise<boolean> {
  const { stores, clock } = work.deps;
  const found = job.creates > 0 ? await findJobInTime(work, job, { mayGiveUp: true }) : null;
  if (found === null) return false;
  await stores.write((tx) => markCreated(tx, job.id, found.name, clock.nowMs()));
  await endWaiting(work);
  return true;
}

/**
 * The answer came after another process had taken over. That one looks for the job, unless it has gone on without it: then
 * nobody else knows of it.
 */
async function stopLate({ deps, provider, jobId }: JobWork, name: string): Promise<void> {
  const job = await deps.stores.read.upstreamJobs.byId(jobId);
  if (job?.step === "sent" || job?.upstreamName === name || job?.endedNames.includes(name)) return;
  deps.log.warn("a job was created too late; the upstream is asked to stop it", { job: jobId, name });
  await provider.cancel(name, AbortSignal.timeout(STOP_MS));
}

/** The next step looks for the job. */
function warnOfLostAnswer({ deps, jobId }: JobWork, error: unknown): void {
  deps.log.warn("the answer to the creation of a job was lost; looking for the job", {
    job: jobId,
    error: String(error),
  });
}

/**
 * Waits until the rate lets a job be created, and records that it is sent. Returns false when the batch has ended meanwhile:
 * then nothing may be sent.
 */
async function markSent(work: JobWork, job: UpstreamJobRecord): Promise<boolean> {
  const { deps, batch, provider, jobId, signal } = work;
  const { stores, clock, ending } = deps;
  await provider.waitForRate(signal);
  // It is not sent any more: the job waits for the stop, and whoever goes on with it then sends it.
  if (ending.aborted) await unlessAborted(new Promise<never>(() => {}), signal);
  return stores.write(async (tx) => {
    if ((await tx.batches.locked(batch.id))?.status !== "running") return false;
    const creates = job.creates + 1;
    await tx.upstreamJobs.update(jobId, { step: "sent", creates, sentAtMs: clock.nowMs() });
    if (creates > 1 && isPaid(provider)) await tx.items.markJob(jobId, "twice");
    return true;
  });
}

/** The job may have been found and stopped already, because its batch has ended meanwhile. */
async function markCreated(tx: Transaction, jobId: string, upstreamName: string, nowMs: number) {
  const job = await tx.upstreamJobs.byId(jobId);
  if (!job || !BEING_CREATED.includes(job.step) || job.endedNames.includes(upstreamName)) return;
  const sentAtMs = job.sentAtMs ?? nowMs;
  await tx.upstreamJobs.update(jobId, { step: "running", upstreamName, sentAtMs, polledAtMs: null });
}

async function unmarkSent(
  tx: Transaction,
  jobId: string,
  { creates, sentAtMs }: Pick<UpstreamJobRecord, "creates" | "sentAtMs">,
): Promise<void> {
  await tx.upstreamJobs.update(jobId, { step: "uploaded", creates, sentAtMs });
  if (creates > 0) await tx.items.markJob(jobId, "once");
}

/**
 * Looks for a job whose creation has no known answer. It is created once more only when a whole list, read long enough
 * after the request, does not have it. Rejects with `ProviderError` when it is given up.
 */
export async function findLostJob(work: JobWork, job: UpstreamJobRecord): Promise<void> {
  const { deps, provider, jobId, signal } = work;
  const { stores, clock } = deps;
  const sentAtMs = job.sentAtMs ?? job.createdAtMs;
  for (let tries = 1; ; tries++) {
    const nowMs = clock.nowMs();
    try {
      const found = await findJob(provider, job, signal);
      if (found) {
        await stores.write((tx) => markCreated(tx, jobId, found.name, nowMs));
        return endWaiting(work);
      }
      if (nowMs - sentAtMs >= provider.times.lostMs) break;
      tries = 0;
      await clock.sleep(provider.times.pollMs, signal);
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      if (nowMs - job.createdAtMs > FORGOTTEN_MS) break;
      await waitAfter(work, error, tries, { mayGiveUp: false });
    }
  }
  const isTooOld = clock.nowMs() - job.createdAtMs > FORGOTTEN_MS;
  if (isTooOld || job.creates >= MOST_CREATES) throw new ProviderError("PROVIDER_ITEM_FAILED", LOST);
  deps.log.warn("a job whose answer was lost was not found; creating another, which may be paid twice", {
    job: jobId,
  });
  await stores.write((tx) => tx.upstreamJobs.update(jobId, { step: "uploaded" }));
}

/** Failures of a request to create a job after which none exists for sure. */
const NOTHING_CREATED: readonly (Trouble | null)[] = [
  "credential",
  "billing",
  "forbidden",
  "no-model",
  "limited",
  "unreachable",
];

const OVERLOADED = [503, 529];

/** Returns whether the upstream says that it takes nothing now. A gateway may say so although the job was made. */
function isOverloaded({ trouble, upstreamStatus }: ProviderError): boolean {
  return trouble === "failing" && upstreamStatus !== null && OVERLOADED.includes(upstreamStatus);
}

/** Returns whether a job may exist although the request to create it has failed. */
function mayBeCreated({ trouble, retryable }: ProviderError): boolean {
  return trouble === null ? retryable : !NOTHING_CREATED.includes(trouble);
}
