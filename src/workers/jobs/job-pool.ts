import PQueue from "p-queue";
import { ImgbatchError } from "../../contract/errors.ts";
import { failBatch } from "../../domain/batches/end-batch.ts";
import { startIn } from "../../domain/batches/lifecycle.ts";
import {
  FORGOTTEN_MS,
  failureOf,
  GIVE_UP_MS,
  isAtWork,
  markStops,
  newJob,
} from "../../domain/jobs/job-rules.ts";
import { identityOf, isPaid, providerModel } from "../../domain/models.ts";
import type { JobProvider } from "../../domain/ports/image-provider.ts";
import type { UpstreamJobRecord } from "../../domain/ports/stores.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { coalesced } from "../../kernel/pacing.ts";
import { linkSignals } from "../../kernel/signals.ts";
import { asOwner, becomeOwner, endOf, OwnerLost, reportEnded } from "../advance-batch.ts";
import type { WorkerDeps } from "../deps.ts";
import { type PoolEvents, type PoolLoad, Tasks, TROUBLE_DELAY_MS, type WorkerPool } from "../worker-pool.ts";
import { SWEEP_MS } from "./next.ts";
import { closeJob, type JobRun, runJob } from "./run-job.ts";

const CLOSINGS_AT_ONCE = 4;
/** The limit of an attempt to cancel, for which a caller waits. Other attempts may wait for the rate of the upstream. */
const CANCEL_MS = 30_000;
/** The limit of the wait for the jobs of a cancelled batch: an hour until they end, and the time to fetch what they have made. */
const SETTLE_MS = GIVE_UP_MS + 300_000;

type OwnedBatch = Pick<JobRun, "batch" | "deps">;

/**
 * Makes upstream jobs of batches, never more at once than the provider takes, and follows each until its items have
 * outcomes. Keys take turns, and so do the batches of a key, a job each. Jobs that are not needed any more are closed in
 * the background.
 */
export class JobPool implements WorkerPool {
  readonly provider: JobProvider;
  readonly #deps: WorkerDeps;
  readonly #events: PoolEvents;
  /** The work on a job stays in it until it has ended, also after its signal is aborted. */
  readonly #works = new Set<JobRun>();
  readonly #tasks = new Tasks();
  readonly #uploads = new PQueue({ concurrency: 1 });
  readonly #downloads = new PQueue({ concurrency: 1 });
  readonly #stopping = new AbortController();
  readonly #abandoning = new AbortController();
  /** The last attempt to close each job, while it runs. */
  readonly #closings = new Map<string, Promise<boolean>>();
  /** The batches that are being cancelled whose jobs are awaited. `changed` ends the pause before the next look at them. */
  readonly #settling = new Map<string, { changed: AbortController; onRefused: (cause: unknown) => void }>();
  readonly #fill = coalesced(() => this.#fillFreeSlots());
  readonly #sweep = coalesced(() => this.#closeAll());
  /** The pause before the next sweep; null when none is due. */
  #pause: Promise<void> | null = null;
  #isFirstSweep = true;

  constructor(deps: WorkerDeps, provider: JobProvider, events: PoolEvents) {
    this.#deps = deps;
    this.provider = provider;
    this.#events = events;
  }

  /** A stop waits for requests that create a job, not for the jobs: these go on upstream. */
  get load(): PoolLoad {
    const paid = [...this.#works].filter(({ isCreating }) => isCreating).length;
    return { running: this.#works.size, paid, slots: this.provider.concurrency };
  }

  wake(): void {
    void this.#fill();
  }

  /** Leaves the batches that have ended, or that another process has taken over. */
  async poll(areSomeGone = false): Promise<void> {
    const batchIds = new Set([...this.#works].map(({ batch }) => batch.id));
    const { stores, presence, goingOn } = this.#deps;
    for (const batchId of batchIds) await this.noticeStops(batchId);
    const begun = new Map((await stores.read.batches.begun(goingOn.kind)).map((batch) => [batch.id, batch]));
    for (const batchId of batchIds) {
      if (this.#settling.has(batchId)) continue;
      const now = begun.get(batchId);
      if (!now || (now.owner !== null && now.owner !== presence.id)) this.remove(batchId);
    }
    this.wake();
    if (areSomeGone || this.#isFirstSweep) void this.#sweep();
  }

  reset(): void {
    for (const { controller } of this.#works) controller.abort();
  }

  /** Goes on with the jobs of a running batch. */
  resume(batchId: string): void {
    if (this.#worksOf(batchId).length === 0) this.#tasks.track(this.#goOn(batchId));
  }

  async #goOn(batchId: string): Promise<void> {
    if (!this.#deps.goingOn.mayBegin(batchId)) return;
    try {
      if (await this.#find(batchId)) await this.#rest(batchId);
      this.wake();
    } catch (error) {
      this.#tryAgain(batchId, error);
    }
  }

  /** Wakes the work on jobs of a batch that are to be stopped: it polls seldom. */
  async noticeStops(batchId: string): Promise<void> {
    for (const run of this.#worksOf(batchId)) {
      const job = await this.#deps.stores.read.upstreamJobs.byId(run.jobId);
      if (job !== null && job.stopAskedAtMs !== null && run.row?.stopAskedAtMs === null) run.changed.abort();
    }
  }

  remove(batchId: string): void {
    for (const { controller } of this.#worksOf(batchId)) controller.abort();
  }

  /**
   * Jobs at a paid upstream are told to stop, and what they have made is fetched, by their owner. A job that has not ended for
   * an hour is given up. Others have nothing to keep: see `abort`.
   */
  async settle(batchId: string, onRefused: (cause: unknown) => void): Promise<void> {
    if (!isPaid(this.provider) || !(await this.#isMaker(batchId))) return;
    const { stores, clock, presence } = this.#deps;
    const askedAtMs = (await stores.read.batches.byId(batchId))?.cancelAskedAtMs ?? clock.nowMs();
    await stores.write(async (tx) => {
      await tx.lock("batch", batchId);
      await markStops(tx, batchId, clock.nowMs());
    });
    await this.#leaveWaits(batchId);
    try {
      for (;;) {
        const changed = new AbortController();
        this.#settling.set(batchId, { changed, onRefused });
        const leftMs = askedAtMs + SETTLE_MS - clock.nowMs();
        if (leftMs <= 0 || !(await this.#hasStopping(batchId))) return;
        const { signal, unlink } = linkSignals(this.#stopping.signal, changed.signal);
        const waits = [clock.sleep(leftMs, signal)];
        // Another process may be the owner.
        if (!presence.isAlone) waits.push(presence.nextPoll(signal));
        await Promise.race(waits).catch(() => {});
        changed.abort();
        unlink();
        this.#stopping.signal.throwIfAborted();
      }
    } finally {
      this.#settling.delete(batchId);
    }
  }

  /** Ends the work on the jobs of a batch that may wait for long: whoever goes on with a job then finds it marked to be stopped. */
  async #leaveWaits(batchId: string): Promise<void> {
    for (const work of this.#worksOf(batchId)) {
      const step = (await this.#deps.stores.read.upstreamJobs.byId(work.jobId))?.step;
      if (!work.isCreating && step !== "ended") work.controller.abort();
    }
  }

  /** Whether jobs of a batch are to be stopped and have not ended. Goes on with them if this process is the owner. */
  async #hasStopping(batchId: string): Promise<boolean> {
    const jobs = await this.#deps.stores.read.upstreamJobs.ofBatch(batchId);
    const stopping = jobs.filter((job) => isAtWork(job) && job.stopAskedAtMs !== null);
    if (stopping.length === 0) return false;
    const owned = await this.#own(batchId);
    if (owned) for (const { id } of stopping) this.#start(owned, id);
    return true;
  }

  async abort(batchId: string): Promise<void> {
    const isOurs = this.#worksOf(batchId).length > 0 || (await this.#isMaker(batchId));
    this.remove(batchId);
    if (!isOurs) return;
    const jobs = await this.#deps.stores.read.upstreamJobs.ofBatch(batchId);
    const open = jobs.filter(({ step }) => step !== "closed");
    const { signal, unlink } = linkSignals(this.#stopping.signal, AbortSignal.timeout(CANCEL_MS));
    const closings = await Promise.allSettled(open.map(({ id }) => this.#close(id, signal)));
    unlink();
    if (!closings.every((closing) => closing.status === "fulfilled" && closing.value)) this.#sweepLater();
    const failed = closings.find((closing) => closing.status === "rejected");
    if (!failed) return;
    this.#deps.log.error("the upstream could not be told to cancel", { error: String(failed.reason) });
    throw new ImgbatchError("BATCH_IMAGE_CANCEL_FAILED", undefined, { cause: failed.reason });
  }

  /** Jobs go on upstream; the next start finds them by their names. */
  async stop(graceMs: number, isAbandoned = false): Promise<void> {
    this.#stopping.abort();
    this.reset();
    if (isAbandoned) this.#abandoning.abort();
    const { paid } = this.load;
    if (paid > 0) this.#deps.log.info("waiting for requests that are paid", { paid, graceMs });
    await Promise.all([this.#fill(), this.#sweep(), this.#pause]);
    await this.#tasks.idle();
  }

  #worksOf(batchId: string): JobRun[] {
    return [...this.#works].filter(({ batch, signal }) => batch.id === batchId && !signal.aborted);
  }

  /**
   * Returns an open batch of which this process is the owner, and goes on with its jobs: they are at work already, whatever
   * the limit is now. Returns null when another process owns it, or when it has ended.
   */
  async #find(batchId: string): Promise<OwnedBatch | null> {
    const owned = this.#worksOf(batchId)[0] ?? (await this.#own(batchId));
    if (owned === null) return null;
    const jobs = await this.#deps.stores.read.upstreamJobs.ofBatch(batchId);
    for (const job of jobs.filter(isAtWork)) this.#start(owned, job.id);
    return owned;
  }

  async #own(batchId: string): Promise<OwnedBatch | null> {
    if (!(await becomeOwner(this.#deps, batchId))) return null;
    const deps = asOwner(this.#deps, batchId);
    const batch = await deps.stores.read.batches.byId(batchId);
    const isOpen = batch?.status === "queued" || batch?.status === "running";
    return isOpen && !this.#stopping.signal.aborted ? { batch, deps } : null;
  }

  /** A job may have been made by a transaction whose answer was lost: it is found then. */
  #tryAgain(batchId: string, error: unknown): void {
    if (error instanceof OwnerLost) {
      this.remove(batchId);
      return;
    }
    const { log, clock } = this.#deps;
    log.error("the jobs of a batch could not be looked up; trying again", {
      batch: batchId,
      error: String(error),
    });
    const again = () => this.#goOn(batchId);
    this.#tasks.track(clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).then(again, () => {}));
  }

  /** Makes jobs while slots are free, a job for each queue in its turn, and for each batch of it in its own. */
  async #fillFreeSlots(): Promise<void> {
    const { feed, log, clock } = this.#deps;
    const without = new Set<string>();
    while (this.#events.mayBegin() && this.#works.size < this.provider.concurrency) {
      let batchId: string | null = null;
      try {
        batchId = await this.#nextBatch(without);
        if (batchId === null) return;
        without.add(batchId);
        const owned = await this.#find(batchId);
        const made = owned && (await makeJob(owned.deps, this.provider, owned.batch));
        if (!made) continue;
        if (made.isStarted) feed.publish({ type: "batch", batchId, status: "running" });
        owned.batch.status = "running";
        this.#start(owned, made.jobId);
        without.delete(batchId);
      } catch (error) {
        if (batchId !== null) this.#tryAgain(batchId, error);
        else {
          log.error("no batch could be looked up; trying again", { error: String(error) });
          await clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).catch(() => {});
        }
      }
    }
  }

  async #nextBatch(without: ReadonlySet<string>): Promise<string | null> {
    const { stores, goingOn } = this.#deps;
    const { batches } = stores.read;
    for (const queue of await batches.queues(goingOn.kind)) {
      if (queue.provider !== this.provider.name) continue;
      const turn = await batches.nextOf(queue, Number.MAX_SAFE_INTEGER);
      const next = turn.find((id) => !without.has(id) && this.#events.mayBegin(id));
      if (next !== undefined) return next;
    }
    return null;
  }

  /** Works on a job until it is done, or until its batch is removed. */
  #start({ batch, deps }: OwnedBatch, jobId: string): void {
    if (this.#stopping.signal.aborted || this.#worksOf(batch.id).some((each) => each.jobId === jobId)) return;
    const controller = new AbortController();
    const work: JobRun = {
      deps,
      provider: this.provider,
      batch,
      jobId,
      model: providerModel(this.provider, deps.models, batch.model) ?? batch.model,
      uploads: this.#uploads,
      downloads: this.#downloads,
      controller,
      signal: controller.signal,
      abandoned: this.#abandoning.signal,
      changed: new AbortController(),
      row: null,
      stopRefusal: null,
      onStopRefused: (cause) => this.#settling.get(batch.id)?.onRefused(cause),
      onReleased: () => this.wake(),
      isCreating: false,
    };
    if (batch.waiting) this.#deps.health.askOnceFirst(this.provider, work.model, batch.waiting);
    this.#works.add(work);
    this.#tasks.track(this.#work(work));
  }

  async #work(work: JobRun): Promise<void> {
    const { jobId, signal, batch } = work;
    const { clock, log } = this.#deps;
    while (!signal.aborted) {
      try {
        await runJob(work);
        break;
      } catch (error) {
        if (error instanceof OwnerLost) this.remove(batch.id);
        if (signal.aborted) break;
        log.error("a job could not be continued; trying again", { job: jobId, error: String(error) });
        await clock.sleep(TROUBLE_DELAY_MS, signal).catch(() => {});
      }
    }
    this.#works.delete(work);
    this.#settling.get(batch.id)?.changed.abort();
    if (this.#stopping.signal.aborted) return;
    // The job is done, or its batch ended while the job was being created.
    void this.#sweep();
    if (!signal.aborted) await this.#rest(batch.id).catch((error) => this.#tryAgain(batch.id, error));
    this.wake();
  }

  /** Called when a job has ended: without another one, and without items for one, the batch is done here. */
  async #rest(batchId: string): Promise<void> {
    const { stores, feed } = this.#deps;
    if (this.#worksOf(batchId).length > 0 || (await stores.read.items.countWithoutJob(batchId)) > 0) return;
    if ((await stores.read.batches.byId(batchId))?.cancelAskedAtMs != null) return;
    const error = await failureOf(stores.read, batchId);
    if (error) {
      const failed = await failBatch(this.#deps, batchId, error, () => endOf(this.#deps));
      if (failed) reportEnded(feed, batchId, "failed", failed);
    }
    this.#events.onBatchIdle(batchId);
  }

  #sweepLater(): void {
    const sweep = () => {
      this.#pause = null;
      void this.#sweep();
    };
    this.#pause ??= this.#deps.clock.sleep(SWEEP_MS, this.#stopping.signal).then(sweep, () => {});
  }

  /**
   * Tries once to close each job that is done or abandoned, and again every minute while a job is open. The first time it
   * tries the oldest ones, too.
   */
  async #closeAll(): Promise<void> {
    const { stores, clock, log } = this.#deps;
    const { signal } = this.#stopping;
    if (signal.aborted) return;
    const sinceMs = this.#isFirstSweep ? 0 : clock.nowMs() - 2 * FORGOTTEN_MS;
    this.#isFirstSweep = false;
    try {
      const jobs = (await stores.read.upstreamJobs.toClose()).filter((job) => job.createdAtMs >= sinceMs);
      const close = async ({ id, batchId }: UpstreamJobRecord): Promise<boolean> => {
        if (!(await this.#isMaker(batchId)) || !(await becomeOwner(this.#deps, batchId))) return true;
        return this.#close(id, signal).catch((error) => {
          if (!signal.aborted)
            log.warn("a job could not be closed upstream; trying again", { job: id, error: String(error) });
          return false;
        });
      };
      const queue = new PQueue({ concurrency: CLOSINGS_AT_ONCE });
      const closed = await queue.addAll(jobs.map((job) => () => close(job)));
      const areAtWork = (await stores.read.upstreamJobs.atWork()).length > 0;
      if (areAtWork || closed.includes(false)) this.#sweepLater();
    } catch (error) {
      log.error("the jobs to close could not be looked up; trying again", { error: String(error) });
      this.#sweepLater();
    }
  }

  /** Attempts for one job run one after the other, so that a second one sees the result of the first. */
  #close(jobId: string, signal: AbortSignal): Promise<boolean> {
    const close = () => closeJob({ deps: this.#deps, provider: this.provider, jobId, signal });
    const attempt = (this.#closings.get(jobId)?.then(close, close) ?? close()).finally(() => {
      if (this.#closings.get(jobId) === attempt) this.#closings.delete(jobId);
    });
    this.#closings.set(jobId, attempt);
    return attempt;
  }

  /** Whether the jobs of a batch are those of this provider, or of one with another name at the same upstream. */
  async #isMaker(batchId: string): Promise<boolean> {
    const { stores, providers } = this.#deps;
    const batch = await stores.read.batches.byId(batchId);
    if (!batch) return false;
    if (batch.provider === this.provider.name) return true;
    const isConfigured = providers.some(({ name }) => name === batch.provider);
    return !isConfigured && batch.upstream === identityOf(this.provider);
  }
}

/**
 * Makes a job of the next items of a batch, which is `running` then. Nothing is sent yet. Returns null when the batch has
 * no items without a job, or has ended.
 */
function makeJob(
  { stores, ids, clock }: WorkerDeps,
  { name: provider, limits }: JobProvider,
  { id: batchId }: BatchRecord,
): Promise<{ jobId: string; isStarted: boolean } | null> {
  const nowMs = clock.nowMs();
  return stores.write(async (tx) => {
    const isStarted = await startIn(tx, batchId, nowMs);
    if ((await tx.batches.locked(batchId))?.status !== "running") return null;
    const jobId = `imgbatch-${await tx.upstreamJobs.databaseId()}-${ids.recordId("job")}`;
    const count = await tx.items.assignToJob(batchId, { jobId, provider, limit: limits.images });
    if (count === 0) return null;
    await tx.batches.serve(batchId);
    await tx.upstreamJobs.insert(newJob(jobId, { id: batchId }, nowMs));
    return { jobId, isStarted };
  });
}
