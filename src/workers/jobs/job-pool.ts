import PQueue from "p-queue";
import { ImgbatchError } from "../../contract/errors.ts";
import { failBatch } from "../../domain/batches/end-batch.ts";
import { startIn } from "../../domain/batches/lifecycle.ts";
import { FORGOTTEN_MS, failureOf, isAtWork, newJob } from "../../domain/jobs/job-rules.ts";
import { identityOf, providerModel } from "../../domain/models.ts";
import type { UpstreamJobRecord } from "../../domain/ports/batches.ts";
import type { JobProvider } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { coalesced } from "../../kernel/pacing.ts";
import { linkSignals } from "../../kernel/signals.ts";
import { asOwner, becomeOwner, endOf, OwnerLost, reportEnded } from "../advance-batch.ts";
import type { WorkerDeps } from "../deps.ts";
import { type PoolEvents, type PoolLoad, Tasks, TROUBLE_DELAY_MS, type WorkerPool } from "../worker-pool.ts";
import { closeJob } from "./close-job.ts";
import { runJob } from "./run-job.ts";
import type { JobWork } from "./send-job.ts";

/** Pause between two attempts to close jobs that are not needed any more. */
const SWEEP_MS = 60_000;
const CLOSINGS_AT_ONCE = 4;
/** The limit of an attempt to cancel, for which a caller waits. Other attempts may wait for the rate of the upstream. */
const CANCEL_MS = 30_000;

interface ActiveBatch {
  batch: BatchRecord;
  /** Dependencies whose writes fail once another process owns the batch. */
  deps: WorkerDeps;
  controller: AbortController;
  works: Map<string, JobWork>;
}

/**
 * Makes upstream jobs of batches, never more at once than the provider takes, and follows each until its items have
 * outcomes. Keys take turns, and so do the batches of a key, a job each. Jobs that are not needed any more are closed in
 * the background.
 */
export class JobPool implements WorkerPool {
  readonly provider: JobProvider;
  readonly #deps: WorkerDeps;
  readonly #events: PoolEvents;
  readonly #batches = new Map<string, ActiveBatch>();
  readonly #tasks = new Tasks();
  readonly #uploads = new PQueue({ concurrency: 1 });
  readonly #downloads = new PQueue({ concurrency: 1 });
  readonly #stopping = new AbortController();
  readonly #abandoning = new AbortController();
  /** The last attempt to close each job, while it runs. */
  readonly #closings = new Map<string, Promise<boolean>>();
  readonly #fill = coalesced(() => this.#fillFreeSlots());
  readonly #sweep = coalesced(() => this.#closeAll());
  #nextSweep = new AbortController();
  #isFirstSweep = true;
  #running = 0;

  constructor(deps: WorkerDeps, provider: JobProvider, events: PoolEvents) {
    this.#deps = deps;
    this.provider = provider;
    this.#events = events;
  }

  /** A stop waits for requests that create a job, not for the jobs: these go on upstream. */
  get load(): PoolLoad {
    const works = [...this.#batches.values()].flatMap((active) => [...active.works.values()]);
    const paid = works.filter(({ isCreating }) => isCreating).length;
    return { running: this.#running, paid, slots: this.provider.concurrency };
  }

  wake(): void {
    void this.#fill();
  }

  /** Forgets the batches that have ended, or that another process has taken over. */
  async poll(areSomeGone = false): Promise<void> {
    const withJobs = [...this.#batches.values()].filter(({ works }) => works.size > 0);
    const { stores, presence } = this.#deps;
    for (const { batch } of withJobs) await this.noticeStops(batch.id);
    const begun = new Map((await stores.read.batches.begun()).map((batch) => [batch.id, batch]));
    for (const { batch } of withJobs) {
      const now = begun.get(batch.id);
      if (!now || (now.owner !== null && now.owner !== presence.id)) this.remove(batch.id);
    }
    this.wake();
    if (areSomeGone || this.#isFirstSweep) void this.#sweep();
  }

  reset(): void {
    for (const batchId of [...this.#batches.keys()]) this.remove(batchId);
  }

  /** Goes on with the jobs of a running batch. */
  resume(batchId: string): void {
    if (!this.#batches.has(batchId)) this.#tasks.track(this.#goOn(batchId));
  }

  async #goOn(batchId: string): Promise<void> {
    try {
      const active = await this.#find(batchId);
      if (active) await this.#rest(active);
      this.wake();
    } catch (error) {
      this.#tryAgain(batchId, error);
    }
  }

  /** Wakes the work on jobs of a batch that are to be stopped: it polls seldom. */
  async noticeStops(batchId: string): Promise<void> {
    const works = this.#batches.get(batchId)?.works;
    if (works === undefined) return;
    for (const { id, stopAskedAtMs } of await this.#deps.stores.read.upstreamJobs.ofBatch(batchId))
      if (stopAskedAtMs !== null) works.get(id)?.stopAsked.abort();
  }

  remove(batchId: string): void {
    const active = this.#batches.get(batchId);
    if (!active) return;
    this.#batches.delete(batchId);
    active.controller.abort();
  }

  async abort(batchId: string): Promise<void> {
    const isOurs = this.#batches.get(batchId) !== undefined || (await this.#isMaker(batchId));
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
    for (const { controller } of this.#batches.values()) controller.abort();
    if (isAbandoned) this.#abandoning.abort();
    const { paid } = this.load;
    if (paid > 0) this.#deps.log.info("waiting for requests that are paid", { paid, graceMs });
    await Promise.all([this.#fill(), this.#sweep()]);
    await this.#tasks.idle();
  }

  #isActive(active: ActiveBatch): boolean {
    return this.#batches.get(active.batch.id) === active && !this.#stopping.signal.aborted;
  }

  /**
   * Returns an open batch of which this process is the owner, and goes on with its jobs: they are at work already, whatever
   * the limit is now. Returns null when another process owns it, or when it has ended.
   */
  async #find(batchId: string): Promise<ActiveBatch | null> {
    const { stores } = this.#deps;
    if (!this.#batches.has(batchId)) {
      if (!(await becomeOwner(this.#deps, batchId))) return null;
      const batch = await stores.read.batches.byId(batchId);
      const isOpen = batch?.status === "queued" || batch?.status === "running";
      if (!isOpen || this.#stopping.signal.aborted) return null;
      const deps = asOwner(this.#deps, batchId);
      if (!this.#batches.has(batchId))
        this.#batches.set(batchId, { batch, deps, controller: new AbortController(), works: new Map() });
    }
    const active = this.#batches.get(batchId) as ActiveBatch;
    const jobs = await stores.read.upstreamJobs.ofBatch(batchId);
    for (const job of jobs.filter(isAtWork)) this.#start(active, job.id);
    return active;
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
    while (this.#events.mayBegin() && this.#running < this.provider.concurrency) {
      let batchId: string | null = null;
      try {
        batchId = await this.#nextBatch(without);
        if (batchId === null) return;
        without.add(batchId);
        const active = await this.#find(batchId);
        const made = active && (await makeJob(active.deps, this.provider, active.batch));
        if (!made) continue;
        if (made.isStarted) feed.publish({ type: "batch", batchId, status: "running" });
        active.batch.status = "running";
        this.#start(active, made.jobId);
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
    const { batches } = this.#deps.stores.read;
    for (const queue of await batches.queues()) {
      if (queue.provider !== this.provider.name) continue;
      const turn = await batches.nextOf(queue, Number.MAX_SAFE_INTEGER);
      const next = turn.find((id) => !without.has(id) && this.#events.mayBegin(id));
      if (next !== undefined) return next;
    }
    return null;
  }

  #start(active: ActiveBatch, jobId: string): void {
    if (!this.#isActive(active) || active.works.has(jobId)) return;
    const { batch, deps } = active;
    const work: JobWork = {
      deps,
      provider: this.provider,
      batch,
      jobId,
      model: providerModel(this.provider, deps.models, batch.model) ?? batch.model,
      uploads: this.#uploads,
      downloads: this.#downloads,
      signal: active.controller.signal,
      abandoned: this.#abandoning.signal,
      stopAsked: new AbortController(),
      onReleased: () => this.wake(),
      isCreating: false,
    };
    active.works.set(jobId, work);
    this.#running++;
    this.#tasks.track(this.#work(active, work));
  }

  async #work(active: ActiveBatch, work: JobWork): Promise<void> {
    const { jobId, signal } = work;
    const { clock, log } = this.#deps;
    while (!signal.aborted) {
      try {
        await runJob(work);
        break;
      } catch (error) {
        if (error instanceof OwnerLost) this.remove(active.batch.id);
        if (signal.aborted) break;
        log.error("a job could not be continued; trying again", { job: jobId, error: String(error) });
        await clock.sleep(TROUBLE_DELAY_MS, signal).catch(() => {});
      }
    }
    this.#running--;
    active.works.delete(jobId);
    if (this.#stopping.signal.aborted) return;
    // The job is done, or its batch ended while the job was being created.
    void this.#sweep();
    await this.#rest(active).catch((error) => this.#tryAgain(active.batch.id, error));
    this.wake();
  }

  /** Called when a job has ended: without another one, and without items for one, the batch is done here. */
  async #rest(active: ActiveBatch): Promise<void> {
    const { stores, feed } = this.#deps;
    const { id } = active.batch;
    if (active.works.size > 0 || !this.#isActive(active)) return;
    if ((await stores.read.items.countWithoutJob(id)) > 0) return;
    const error = await failureOf(stores.read, id);
    if (error) {
      const failed = await failBatch(this.#deps, id, error, () => endOf(this.#deps));
      if (failed) reportEnded(feed, id, "failed", failed);
    }
    if (!this.#isActive(active) || active.works.size > 0) return;
    this.#batches.delete(id);
    this.#events.onBatchIdle(id);
  }

  #sweepLater(): void {
    this.#nextSweep.abort();
    if (this.#stopping.signal.aborted) return;
    this.#nextSweep = new AbortController();
    this.#deps.clock.sleep(SWEEP_MS, this.#nextSweep.signal).then(
      () => void this.#sweep(),
      () => {},
    );
  }

  /**
   * Tries once to close each job that is done or abandoned, and again every minute while a job is open. The first time it
   * tries the oldest ones, too.
   */
  async #closeAll(): Promise<void> {
    const { stores, clock, log } = this.#deps;
    const { signal } = this.#stopping;
    this.#nextSweep.abort();
    if (signal.aborted) return;
    const sinceMs = this.#isFirstSweep ? 0 : clock.nowMs() - 2 * FORGOTTEN_MS;
    this.#isFirstSweep = false;
    try {
      const jobs = (await stores.read.upstreamJobs.toClose()).filter((job) => job.createdAtMs >= sinceMs);
      const queue = new PQueue({ concurrency: CLOSINGS_AT_ONCE });
      const close = async ({ id, batchId }: UpstreamJobRecord): Promise<boolean> => {
        if (!(await this.#isMaker(batchId)) || !(await becomeOwner(this.#deps, batchId))) return true;
        return this.#close(id, signal).catch((error) => {
          if (!signal.aborted)
            log.warn("a job could not be closed upstream; trying again", { job: id, error: String(error) });
          return false;
        });
      };
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
    const close = () => closeJob(this.#deps, this.provider, jobId, signal);
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
