import type PQueue from "p-queue";
import type { Block, Ticket } from "../../domain/health/provider-health.ts";
import { noteOutage, waitingOn } from "../../domain/health/waiting.ts";
import { FORGOTTEN_MS } from "../../domain/jobs/job-rules.ts";
import type { UpstreamJobRecord } from "../../domain/ports/batches.ts";
import { type JobProvider, ProviderError, type UpstreamJob } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { backoffMs } from "../../kernel/pacing.ts";
import { linkSignals } from "../../kernel/signals.ts";
import type { WorkerDeps } from "../deps.ts";

/** A job may be in the upstream's list with an earlier time than ours: its clock may differ. */
const CLOCK_SLACK_MS = 3_600_000;
const AGAIN = { baseMs: 5000, capMs: 300_000 };
/** Pause while another request finds out whether the upstream is available. */
const PROBING_MS = 1000;
/** Upper bound of a sleep whose end is not known. */
const LONGEST_SLEEP_MS = 3_600_000;

/** A job at work, and what its steps share. */
export interface JobWork {
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
  signal: AbortSignal;
  /** Ends a request that creates a job. Its answer is lost then. */
  abandoned: AbortSignal;
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
export async function endWaiting({ deps, batch }: JobWork): Promise<void> {
  if (batch.waitingSinceMs === null) return;
  batch.waitingSinceMs = null;
  await deps.stores.write((tx) => tx.batches.update(batch.id, { waitingSinceMs: null }));
}
