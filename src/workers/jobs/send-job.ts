import type PQueue from "p-queue";
import type { Block, Ticket } from "../../domain/health/provider-health.ts";
import { noteOutage, waitingOn } from "../../domain/health/waiting.ts";
import { FORGOTTEN_MS, paidCreates } from "../../domain/jobs/job-rules.ts";
import { isPaid } from "../../domain/models.ts";
import type { JobStep, UpstreamJobRecord } from "../../domain/ports/batches.ts";
import { StorageUnavailable } from "../../domain/ports/blob-store.ts";
import {
  type JobProvider,
  ProviderError,
  type Trouble,
  type UpstreamJob,
} from "../../domain/ports/image-provider.ts";
import type { Transaction } from "../../domain/ports/stores.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { backoffMs } from "../../kernel/pacing.ts";
import { linkSignals, unlessAborted } from "../../kernel/signals.ts";
import { OwnerLost } from "../advance-batch.ts";
import type { WorkerDeps } from "../deps.ts";
import { TROUBLE_DELAY_MS } from "../worker-pool.ts";

/** A job may be in the upstream's list with an earlier time than ours: its clock may differ. */
const CLOCK_SLACK_MS = 3_600_000;
const AGAIN = { baseMs: 5000, capMs: 300_000 };
/** Pause while another request finds out whether the upstream is available. */
const PROBING_MS = 1000;
/** Upper bound of a sleep whose end is not known. */
const LONGEST_SLEEP_MS = 3_600_000;

/** A job at work, and what its steps share. */
export interface JobWork {
  /** Its writes fail once another process owns the batch. */
  deps: WorkerDeps;
  provider: JobProvider;
  batch: BatchRecord;
  jobId: string;
  /** The model that the upstream runs. */
  model: string;
  /** One upload and one download run at once: each holds parts of images in memory. */
  uploads: PQueue;
  downloads: PQueue;
  /** Ends the work on the job here. The job itself goes on upstream. */
  controller: AbortController;
  signal: AbortSignal;
  /** Ends a request that creates a job. Its answer is lost then. */
  abandoned: AbortSignal;
  /** Aborted once the job is to be stopped, so that it is not awaited any longer. */
  stopAsked: AbortController;
  /** Called each time the upstream refuses to stop the job. The job still runs then. */
  onStopRefused(cause: unknown): void;
  /** Called when items went back to their batch, which then needs another job. */
  onReleased(): void;
  /** A request to create it is under way. */
  isCreating: boolean;
}

/**
 * Looks through the upstream's list for a job that was created for this record and is not known yet: by our id or by its
 * input. Looks back to an hour before the record was made. Returns null when the list has none.
 */
export async function findJob(
  provider: JobProvider,
  job: UpstreamJobRecord,
  signal: AbortSignal,
): Promise<UpstreamJob | null> {
  const known = new Set([job.upstreamName, ...job.endedNames]);
  for await (const each of provider.list(signal)) {
    if (each.createdAtMs !== null && each.createdAtMs < job.createdAtMs - CLOCK_SLACK_MS) return null;
    const isOurs = each.jobId === job.id || (each.input !== null && each.input === job.input);
    if (isOurs && !known.has(each.name)) return each;
  }
  return null;
}

/**
 * The same for a job at work: a list that cannot be read is read again later, for as long as the upstream keeps jobs.
 * `mayGiveUp`: rejects with `ProviderError` after too long an outage before that.
 */
export async function findJobInTime(
  work: JobWork,
  job: UpstreamJobRecord,
  { mayGiveUp = false }: { mayGiveUp?: boolean } = {},
): Promise<UpstreamJob | null> {
  const { provider, deps, signal } = work;
  for (let tries = 1; ; tries++) {
    try {
      return await findJob(provider, job, signal);
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      if (deps.clock.nowMs() - (job.sentAtMs ?? job.createdAtMs) > FORGOTTEN_MS) return null;
      await waitAfter(work, error, tries, { mayGiveUp });
    }
  }
}

/**
 * Waits until the upstream may be asked for a job, and returns the permission. Meanwhile the job waits. Rejects with
 * `ProviderError` after too long an outage.
 */
export async function ticketFor(work: JobWork): Promise<Ticket> {
  const { deps, provider, model } = work;
  for (;;) {
    const ticket = deps.health.begin(provider, model);
    if (ticket) return ticket;
    const block = deps.health.blockOf(provider, model);
    if (block) await waitOut(work, block);
    else await deps.clock.sleep(PROBING_MS, work.signal);
  }
}

/**
 * Waits after a failure that may pass. `tries` counts those in a row. Rejects with `ProviderError` after too long an
 * outage, unless the job may exist and is paid.
 */
export function waitAfter(
  work: JobWork,
  error: ProviderError,
  tries: number,
  { mayGiveUp = true }: { mayGiveUp?: boolean } = {},
): Promise<void> {
  const { deps, provider, model } = work;
  const block = deps.health.blockOf(provider, model);
  if (block) return waitOut(work, block, mayGiveUp);
  const ownMs = Math.max(AGAIN.baseMs / 2, backoffMs(tries, AGAIN, deps.random));
  const untilMs = deps.clock.nowMs() + (error.retryAfterMs ?? ownMs);
  const { message, trouble, said } = error;
  const own = { provider: provider.name, trouble: trouble ?? "failing", message, said, untilMs } as const;
  return waitOut(work, own, mayGiveUp);
}

/** Waits for the end of a block, or for a change of health. */
async function waitOut(work: JobWork, block: Block, mayGiveUp = true): Promise<void> {
  const { deps, batch, signal } = work;
  const { stores, clock, health, outageMs, presence } = deps;
  const waiting = waitingOn(block);
  const nowMs = clock.nowMs();
  const giveUpMs = () =>
    mayGiveUp && batch.waitingSinceMs !== null ? batch.waitingSinceMs + outageMs : Number.POSITIVE_INFINITY;
  // Every wait is written: whoever shows the batch reads the reason from its record.
  const facts = { batchId: batch.id, workerId: presence.id, nowMs, outageMs, waiting };
  const { sinceMs, isOver } = await stores.write((tx) => noteOutage(tx, facts));
  batch.waitingSinceMs = sinceMs;
  if (isOver && mayGiveUp) {
    const message = `The upstream could not be used for too long. ${waiting.message}`;
    throw new ProviderError("PROVIDER_ITEM_FAILED", message, { retryable: false });
  }
  const changed = new AbortController();
  const stop = health.onChange(() => changed.abort());
  const { signal: either, unlink } = linkSignals(signal, changed.signal);
  try {
    const untilMs = Math.min(giveUpMs(), block.untilMs ?? Number.POSITIVE_INFINITY);
    await clock.sleep(Math.min(LONGEST_SLEEP_MS, Math.max(1, untilMs - nowMs)), either).catch(() => {});
  } finally {
    stop();
    unlink();
  }
  signal.throwIfAborted();
}

/** The upstream works again: the time of an outage begins anew. */
async function endWaiting({ deps, batch }: JobWork): Promise<void> {
  if (batch.waitingSinceMs === null) return;
  batch.waitingSinceMs = null;
  await deps.stores.write((tx) => tx.batches.update(batch.id, { waitingSinceMs: null }));
}

const BEING_CREATED: readonly JobStep[] = ["uploaded", "sent"];

/** No job is created more often: of two lost answers, both jobs may be paid. See `WorkerDeps.unknownOutcome`. */
const MOST_CREATES = 2;
/** How long the request may take that stops a job which was created too late. */
const STOP_MS = 30_000;
/** Why the items of a job fail that was ended before the upstream took it. */
const ENDED = "The batch was ended before the upstream took the job.";
/** Why the items of a job fail if nobody knows whether the job exists. */
const LOST =
  "The answer of the upstream to the creation of the job was lost, and its list does not have the job. The images may have been billed.";

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
  if (job.stopAskedAtMs !== null) {
    if (paidCreates(job) === 0) throw new ProviderError("CANCELLED", ENDED);
    const sentAtMs = job.sentAtMs ?? job.stopAskedAtMs;
    await stores.write((tx) => tx.upstreamJobs.update(jobId, { step: "sent", sentAtMs }));
    return;
  }
  const ticket = await ticketFor(work);
  const isSent = await markSent(work, job).catch(async (error) => {
    ticket.dropped();
    // Nothing was sent. With the mark, nobody would know that for a long time.
    if (StorageUnavailable.mayHaveHappened(error)) await takeBackMark(work, job);
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
  const mayExist = isOverloaded(refusal);
  await stores.write((tx) => unmarkSent(tx, jobId, job, mayExist));
  if (!refusal.retryable) throw refusal;
  await waitAfter(work, refusal, 1);
}

/**
 * Lets a job be created again from its input, after a pause: the upstream has ended it before it began, for a limit or for
 * money. Rejects with `ProviderError` when the upstream has done so for longer than an outage may last.
 */
export async function createAgain(
  work: JobWork,
  job: UpstreamJobRecord,
  { name, said }: Pick<UpstreamJob, "name" | "said">,
  refusal: ProviderError,
): Promise<void> {
  const { deps, jobId, provider, model } = work;
  const { clock, outageMs, health, stores, random, log } = deps;
  const nowMs = clock.nowMs();
  const refusals = job.refusals + 1;
  const refusedSinceMs = job.refusedSinceMs ?? nowMs;
  const ended = { upstreamName: null, endedNames: [...job.endedNames, name], refusals, refusedSinceMs, said };
  await stores.write(async (tx) => {
    const times = { sentAtMs: null, state: null, polledAtMs: null };
    await tx.upstreamJobs.update(jobId, { step: "uploaded", ...ended, ...times });
    await tx.items.markJob(jobId, "once", "twice");
  });
  log.warn("the upstream ended a job before it began; it is created again", { job: jobId, said });
  if (nowMs - refusedSinceMs >= outageMs) {
    const message = `The upstream took no job for too long. ${refusal.message}`;
    throw new ProviderError(refusal.code, message, { retryable: false });
  }
  const retryAfterMs = Math.max(
    refusal.retryAfterMs ?? 0,
    AGAIN.baseMs / 2,
    backoffMs(refusals, AGAIN, random),
  );
  const error = new ProviderError(refusal.code, refusal.message, { ...refusal, retryAfterMs });
  health.begin(provider, model)?.failed(error, jobId);
  await waitAfter(work, error, refusals);
}

/** Takes the mark of a request back that was not sent. Repeats that until it is stored, or the work on the job ends. */
async function takeBackMark({ deps, jobId, signal }: JobWork, job: UpstreamJobRecord): Promise<void> {
  while (!signal.aborted) {
    try {
      return await deps.stores.write((tx) => unmarkSent(tx, jobId, job));
    } catch (error) {
      if (error instanceof OwnerLost) return;
      await deps.clock.sleep(TROUBLE_DELAY_MS, signal).catch(() => {});
    }
  }
}

/** Looks for a job that an earlier request may have made although the upstream said that it takes none. */
async function isMadeAlready(work: JobWork, job: UpstreamJobRecord): Promise<boolean> {
  const { stores, clock } = work.deps;
  const found = paidCreates(job) > 0 ? await findJobInTime(work, job, { mayGiveUp: true }) : null;
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
    const open = await tx.batches.locked(batch.id);
    if (open?.status !== "running" || !deps.goingOn.includes(open)) return false;
    // The batch may have been ended meanwhile: see `endJobs`.
    const now = await tx.upstreamJobs.byId(jobId);
    if (now?.step !== "uploaded" || now.stopAskedAtMs !== null) return false;
    const creates = job.creates + 1;
    await tx.upstreamJobs.update(jobId, { step: "sent", creates, sentAtMs: clock.nowMs() });
    // After a restore the items are marked, and the job is another one than was paid for.
    if (isPaid(provider))
      await tx.items.markJob(jobId, "twice", paidCreates({ ...job, creates }) > 1 ? undefined : "once");
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

/** Takes back that a job was sent. `mayExist`: the first request may have made it all the same, and counts. */
async function unmarkSent(
  tx: Transaction,
  jobId: string,
  { creates: before, refusals, sentAtMs }: Pick<UpstreamJobRecord, "creates" | "refusals" | "sentAtMs">,
  mayExist = false,
): Promise<void> {
  const creates = mayExist ? Math.max(refusals + 1, before) : before;
  await tx.upstreamJobs.update(jobId, { step: "uploaded", creates, sentAtMs });
  await tx.items.markJob(jobId, "once", creates > before ? "no" : "twice");
}

/**
 * Looks for a job whose creation has no known answer. It is created once more only when a whole list, read long enough
 * after the request, does not have it. Rejects with `ProviderError` when it is given up.
 */
export async function findLostJob(work: JobWork, job: UpstreamJobRecord): Promise<void> {
  const { deps, provider, jobId, signal } = work;
  const { stores, clock } = deps;
  const sentAtMs = job.sentAtMs ?? job.createdAtMs;
  for (;;) {
    const nowMs = clock.nowMs();
    const found = await findJobInTime(work, job);
    if (found) {
      await stores.write((tx) => markCreated(tx, jobId, found.name, nowMs));
      return endWaiting(work);
    }
    if (nowMs - sentAtMs >= provider.times.lostMs) break;
    await clock.sleep(provider.times.pollMs, signal);
  }
  const isTooOld = clock.nowMs() - job.createdAtMs > FORGOTTEN_MS;
  const isWanted = (await stores.read.upstreamJobs.byId(jobId))?.stopAskedAtMs == null;
  const most = isPaid(provider) && deps.unknownOutcome === "stop" ? 1 : MOST_CREATES;
  if (isTooOld || !isWanted || paidCreates(job) >= most) throw new ProviderError("OUTCOME_UNKNOWN", LOST);
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
