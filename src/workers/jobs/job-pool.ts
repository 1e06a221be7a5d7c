import PQueue from "p-queue";
import { ImgbatchError } from "../../contract/errors.ts";
import { failBatch } from "../../domain/batches/end-batch.ts";
import { FORGOTTEN_MS, failureOf, isAtWork } from "../../domain/jobs/job-rules.ts";
import { identityOf, providerModel } from "../../domain/models.ts";
import type { UpstreamJobRecord } from "../../domain/ports/batches.ts";
import type { JobProvider } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { coalesced } from "../../kernel/coalesced.ts";
import { linkSignals } from "../../kernel/linked-signal.ts";
import { asOwner, becomeOwner, endOf, OwnerLost, reportEnded } from "../advance-batch.ts";
import { BatchSet, type PoolLoad, type WorkerPool } from "../batch-set.ts";
import type { WorkerDeps } from "../deps.ts";
import { closeJob } from "./close-job.ts";
import type { JobWork } from "./job-work.ts";
import { runJob } from "./run-job.ts";

const TROUBLE_DELAY_MS = 5000;
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
  /** No new job is made of it. */
  isHeld: boolean;
  /** It may have items without a job. */
  isReady: boolean;
}

/**
 * Makes upstream jobs of batches, never more at once than the provider takes, and follows each until its items have
 * outcomes. Keys take turns, and so do the batches of a key, a job each. Jobs that are not needed any more are closed in
 * the background.
 */
export class JobPool implements WorkerPool {
  readonly provider: JobProvider;
  readonly #deps: WorkerDeps;
  readonly #onBatchIdle: (batchId: string) => void;
  readonly #batches = new BatchSet<ActiveBatch>();
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
  #isPaused = false;

  /** `onBatchIdle` is called when a batch has no item left that is pending. */
  constructor(deps: WorkerDeps, provider: JobProvider, onBatchIdle: (batchId: string) => void) {
    this.#deps = deps;
    this.provider = provider;
    this.#onBatchIdle = onBatchIdle;
  }

  /** A stop waits for requests that create a job, not for the jobs: these go on upstream. */
  get load(): PoolLoad {
    const works = this.#batches.all().flatMap((active) => [...active.works.values()]);
    const paid = works.filter(({ isCreating }) => isCreating).length;
    return { running: this.#running, paid, slots: this.provider.concurrency };
  }

  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    if (!isPaused) void this.#fill();
  }

  start(): void {
    void this.#sweep();
  }

  async poll(): Promise<void> {
    void this.#fill();
  }

  reset(): void {
    for (const { batch } of this.#batches.all()) this.remove(batch.id);
  }

  add(batch: BatchRecord): void {
    if (this.#stopping.signal.aborted) return;
    const active = this.#batches.get(batch.id);
    if (active) {
      active.isHeld = false;
      this.#makeReady(active);
      return;
    }
    const deps = asOwner(this.#deps, batch.id);
    const flags = { isHeld: false, isReady: false };
    const added = { batch, deps, controller: new AbortController(), works: new Map(), ...flags };
    this.#batches.add(added);
    this.#batches.track(this.#resume(added));
  }

  hold(batchId: string): void {
    const active = this.#batches.get(batchId);
    if (active) active.isHeld = true;
  }

  remove(batchId: string): void {
    const active = this.#batches.get(batchId);
    if (!active) return;
    this.#batches.delete(active);
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
    for (const { controller } of this.#batches.all()) controller.abort();
    if (isAbandoned) this.#abandoning.abort();
    const { paid } = this.load;
    if (paid > 0) this.#deps.log.info("waiting for requests that are paid", { paid, graceMs });
    await Promise.all([this.#fill(), this.#sweep()]);
    await this.#batches.idle();
  }

  #isActive(active: ActiveBatch): boolean {
    return this.#batches.has(active) && !this.#stopping.signal.aborted;
  }

  #makeReady(active: ActiveBatch): void {
    active.isReady = true;
    void this.#fill();
  }

  /** Goes on with the jobs that an earlier process made. They are at work already, whatever the limit is now. */
  async #resume(active: ActiveBatch): Promise<void> {
    try {
      const jobs = await this.#deps.stores.read.upstreamJobs.ofBatch(active.batch.id);
      if (this.#isActive(active)) for (const job of jobs.filter(isAtWork)) this.#start(active, job.id);
      this.#makeReady(active);
    } catch (error) {
      this.#resumeLater(active, error);
    }
  }

  #resumeLater(active: ActiveBatch, error: unknown): void {
    if (error instanceof OwnerLost) {
      this.remove(active.batch.id);
      return;
    }
    const { log, clock } = this.#deps;
    const facts = { batch: active.batch.id, error: String(error) };
    log.error("the jobs of a batch could not be looked up; trying again", facts);
    const again = () => this.#resume(active);
    this.#batches.track(clock.sleep(TROUBLE_DELAY_MS, active.controller.signal).then(again, () => {}));
  }

  /** Makes jobs while slots are free. */
  async #fillFreeSlots(): Promise<void> {
    while (this.#mayBegin && this.#running < this.provider.concurrency) {
      const active = this.#batches.next(({ isReady, isHeld }) => isReady && !isHeld);
      if (!active) break;
      // Items that come back to the batch meanwhile make it ready again.
      active.isReady = false;
      try {
        const jobId = await makeJob(active.deps, this.provider, active.batch);
        if (jobId !== null) {
          this.#start(active, jobId);
          active.isReady = true;
        } else await this.#rest(active);
      } catch (error) {
        // A job may have been made by a transaction whose answer was lost.
        this.#resumeLater(active, error);
      }
    }
  }

  get #mayBegin(): boolean {
    const isEnding = this.#stopping.signal.aborted || this.#deps.ending.aborted;
    return !this.#isPaused && !isEnding && this.#deps.presence.isFresh;
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
      onReleased: () => this.#makeReady(active),
      isCreating: false,
    };
    active.works.set(jobId, work);
    this.#running++;
    this.#batches.track(this.#work(active, work));
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
    this.#makeReady(active);
  }

  /** Called when a batch has no items without a job: it is done here, or its jobs are at work. */
  async #rest(active: ActiveBatch): Promise<void> {
    const { stores, feed } = this.#deps;
    const { id } = active.batch;
    if (active.works.size > 0 || !this.#isActive(active)) return;
    const error = await failureOf(stores.read, id);
    if (error) {
      const failed = await failBatch(this.#deps, id, error, () => endOf(this.#deps));
      if (failed) reportEnded(feed, id, "failed", failed);
    }
    if (!this.#isActive(active) || active.works.size > 0) return;
    this.#batches.delete(active);
    this.#onBatchIdle(id);
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
 * Makes a job of the next items of a batch. Nothing is sent yet. Returns the id of the job; null when the batch has no
 * items without a job, or has ended.
 */
function makeJob(
  { stores, ids, clock }: WorkerDeps,
  { name: provider, limits }: JobProvider,
  { id: batchId }: BatchRecord,
): Promise<string | null> {
  return stores.write(async (tx) => {
    if ((await tx.batches.locked(batchId))?.status !== "running") return null;
    const id = `imgbatch-${await tx.upstreamJobs.databaseId()}-${ids.recordId("job")}`;
    const count = await tx.items.assignToJob(batchId, { jobId: id, provider, limit: limits.images });
    if (count === 0) return null;
    await tx.upstreamJobs.insert({ ...NEW, id, batchId, createdAtMs: clock.nowMs() });
    return id;
  });
}

const NEW: Omit<UpstreamJobRecord, "id" | "batchId" | "createdAtMs"> = {
  step: "new",
  hasReferences: false,
  input: null,
  uploadedAtMs: null,
  upstreamName: null,
  endedNames: [],
  creates: 0,
  sentAtMs: null,
  state: null,
  said: null,
  error: null,
  results: 0,
  polledAtMs: null,
  endedAtMs: null,
  closedAtMs: null,
  stopAskedAtMs: null,
};
