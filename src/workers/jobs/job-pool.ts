import PQueue from "p-queue";
import { ImgbatchError } from "../../contract/errors.ts";
import type { ShownJob, Waiting } from "../../contract/waiting.ts";
import { failBatch } from "../../domain/batches/fail-batch.ts";
import { EVERY_MODEL } from "../../domain/health/transitions.ts";
import { waitingOn } from "../../domain/health/waiting.ts";
import { failureOf } from "../../domain/jobs/end-job.ts";
import { isAtWork } from "../../domain/jobs/job-rules.ts";
import { providerModel } from "../../domain/offers.ts";
import type { JobProvider } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { endOf } from "../advance-batch.ts";
import type { WorkerDeps } from "../deps.ts";
import { Filling } from "../filling.ts";
import { reportEnded } from "../report-ended.ts";
import { RoundRobin } from "../round-robin.ts";
import { asTender, isTendedHere, TenderLost } from "../tender.ts";
import type { PoolLoad, WorkerPool } from "../worker-pool.ts";
import { ForeignJobs } from "./foreign-jobs.ts";
import { isMadeBy } from "./is-made-by.ts";
import { JobCloser } from "./job-closer.ts";
import { JobWatch } from "./job-watch.ts";
import type { JobWork } from "./job-work.ts";
import { makeJob } from "./make-job.ts";
import { runJob } from "./run-job.ts";
import { showJob } from "./show-job.ts";

const TROUBLE_DELAY_MS = 5000;

interface ActiveBatch {
  batch: BatchRecord;
  /** They write only as long as this process tends the batch. */
  deps: WorkerDeps;
  controller: AbortController;
  works: Map<string, JobWork>;
  /** No new job is made of it. */
  isHeld: boolean;
}

/**
 * Makes upstream jobs of batches, never more at once than the provider takes, and follows each until its items have
 * outcomes. Keys take turns, and so do the batches of a key, a job each.
 */
export class JobPool implements WorkerPool {
  readonly provider: JobProvider;
  readonly #deps: WorkerDeps;
  readonly #onBatchIdle: (batchId: string) => void;
  readonly #active = new Map<string, ActiveBatch>();
  /** Batches that may have items without a job. */
  readonly #roundRobin = new RoundRobin<ActiveBatch>();
  readonly #uploads = new PQueue({ concurrency: 1 });
  readonly #downloads = new PQueue({ concurrency: 1 });
  readonly #stopping = new AbortController();
  readonly #abandoning = new AbortController();
  readonly #watch: JobWatch;
  readonly #closer: JobCloser;
  readonly #foreign: ForeignJobs;
  readonly #tasks = new Set<Promise<void>>();
  #running = 0;
  readonly #filling: Filling;
  #isPaused = false;

  constructor(deps: WorkerDeps, provider: JobProvider, onBatchIdle: (batchId: string) => void) {
    this.#deps = deps;
    this.provider = provider;
    this.#onBatchIdle = onBatchIdle;
    this.#filling = new Filling(() => this.#fillFreeSlots(), this.#stopping.signal);
    this.#watch = new JobWatch(deps, provider, this.#stopping.signal);
    this.#closer = new JobCloser(deps, provider, this.#stopping.signal);
    this.#foreign = new ForeignJobs(deps, provider, this.#stopping.signal);
  }

  /** A stop waits for requests that create a job, not for the jobs: these go on upstream. */
  get load(): PoolLoad {
    const paid = this.#works().filter(({ isCreating }) => isCreating).length;
    return { running: this.#running, paid, slots: this.provider.concurrency };
  }

  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    if (!isPaused) this.#filling.start();
  }

  async start(): Promise<void> {
    for (const { id, batchId } of await this.#deps.stores.read.upstreamJobs.toClose())
      if ((await isMadeBy(this.#deps, this.provider, batchId)) && (await isTendedHere(this.#deps, batchId)))
        this.#closer.close(id);
    this.#track(this.#foreign.look());
  }

  async look(): Promise<void> {
    this.#filling.start();
  }

  letGo(): void {
    for (const batchId of [...this.#active.keys()]) this.remove(batchId);
  }

  add(batch: BatchRecord): void {
    if (this.#stopping.signal.aborted) return;
    const active = this.#active.get(batch.id);
    if (active) {
      active.isHeld = false;
      this.#line(active);
      return;
    }
    const deps = asTender(this.#deps, batch.id);
    const added = { batch, deps, controller: new AbortController(), works: new Map(), isHeld: false };
    this.#active.set(batch.id, added);
    this.#track(this.#resume(added));
  }

  hold(batchId: string): void {
    const active = this.#active.get(batchId);
    if (!active) return;
    active.isHeld = true;
    this.#roundRobin.delete(active.batch.apiKeyId, batchId);
  }

  remove(batchId: string): void {
    const active = this.#active.get(batchId);
    if (!active) return;
    this.#roundRobin.delete(active.batch.apiKeyId, batchId);
    this.#active.delete(batchId);
    active.controller.abort();
  }

  /** Closes the jobs of a batch that ended without work here: after a crash between its last image and the end of a job. */
  async closeIdle(batchId: string): Promise<void> {
    const jobs = this.#active.has(batchId) ? [] : await this.#deps.stores.read.upstreamJobs.ofBatch(batchId);
    for (const { id, step } of jobs) if (step !== "closed") this.#closer.close(id);
  }

  async abort(batchId: string): Promise<void> {
    const isOurs = this.#active.has(batchId) || (await isMadeBy(this.#deps, this.provider, batchId));
    this.remove(batchId);
    if (!isOurs) return;
    const jobs = await this.#deps.stores.read.upstreamJobs.ofBatch(batchId);
    const open = jobs.filter(({ step }) => step !== "closed");
    const closings = await Promise.allSettled(open.map(({ id }) => this.#closer.closeNow(id)));
    const failed = closings.find((closing) => closing.status === "rejected");
    if (failed) throw new ImgbatchError("BATCH_IMAGE_CANCEL_FAILED", undefined, { cause: failed.reason });
  }

  waitingOf(batchId: string): Waiting | null {
    const works = [...(this.#active.get(batchId)?.works.values() ?? [])];
    const block = this.#deps.health.blockOf(this.provider, EVERY_MODEL);
    if (works.length > 0 && block) return waitingOn(block);
    const [first] = works;
    return first && works.every(({ waiting }) => waiting !== null) ? first.waiting : null;
  }

  jobsOf(batchId: string): ShownJob[] {
    return [...(this.#active.get(batchId)?.works.values() ?? [])].flatMap(({ job }) =>
      job ? showJob(job) : [],
    );
  }

  /** Jobs go on upstream; the next start finds them by their names. */
  async stop(graceMs: number, isAbandoned = false): Promise<void> {
    this.#stopping.abort();
    for (const { controller } of this.#active.values()) controller.abort();
    if (isAbandoned) this.#abandoning.abort();
    const { paid } = this.load;
    if (paid > 0) this.#deps.log.info("waiting for requests that are paid", { paid, graceMs });
    await this.#filling.idle();
    while (this.#tasks.size > 0) await Promise.allSettled([...this.#tasks]);
    await Promise.all([this.#watch.idle(), this.#closer.idle()]);
  }

  #works(): JobWork[] {
    return [...this.#active.values()].flatMap(({ works }) => [...works.values()]);
  }

  #isActive(active: ActiveBatch): boolean {
    return this.#active.get(active.batch.id) === active && !this.#stopping.signal.aborted;
  }

  #track(work: Promise<void>): void {
    const tracked = work.finally(() => this.#tasks.delete(tracked));
    this.#tasks.add(tracked);
  }

  #line(active: ActiveBatch): void {
    if (this.#isActive(active) && !active.isHeld)
      this.#roundRobin.add(active.batch.apiKeyId, active.batch.id, active);
    this.#filling.start();
  }

  /** Goes on with the jobs that an earlier process made. They are at work already, whatever the limit is now. */
  async #resume(active: ActiveBatch): Promise<void> {
    try {
      const jobs = await this.#deps.stores.read.upstreamJobs.ofBatch(active.batch.id);
      if (this.#isActive(active)) for (const job of jobs.filter(isAtWork)) this.#start(active, job.id);
    } catch (error) {
      this.#later(active, error, () => this.#resume(active));
      return;
    }
    this.#line(active);
  }

  #later(active: ActiveBatch, error: unknown, again: () => Promise<void>): void {
    if (error instanceof TenderLost) {
      this.remove(active.batch.id);
      return;
    }
    const { log, clock } = this.#deps;
    const facts = { batch: active.batch.id, error: String(error) };
    log.error("the jobs of a batch could not be looked up; trying again", facts);
    this.#track(clock.sleep(TROUBLE_DELAY_MS, active.controller.signal).then(again, () => {}));
  }

  /** Makes jobs while slots are free. */
  async #fillFreeSlots(): Promise<void> {
    while (this.#mayBegin && this.#running < this.provider.concurrency) {
      const active = this.#roundRobin.next();
      if (!active) break;
      // Items that come back to the batch meanwhile put it in line again.
      this.#roundRobin.delete(active.batch.apiKeyId, active.batch.id);
      try {
        const jobId = await makeJob(active.deps, this.provider, active.batch);
        if (jobId !== null) {
          this.#start(active, jobId);
          this.#line(active);
        } else await this.#rest(active);
      } catch (error) {
        // A job may have been made by a transaction whose answer was lost.
        this.#later(active, error, () => this.#resume(active));
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
      watch: this.#watch,
      uploads: this.#uploads,
      downloads: this.#downloads,
      signal: active.controller.signal,
      abandoned: this.#abandoning.signal,
      onReleased: () => this.#line(active),
      waiting: null,
      job: null,
      isCreating: false,
    };
    active.works.set(jobId, work);
    this.#running++;
    this.#track(this.#work(active, work));
  }

  async #work(active: ActiveBatch, work: JobWork): Promise<void> {
    const { jobId, signal } = work;
    const { clock, log } = this.#deps;
    while (!signal.aborted) {
      try {
        await runJob(work);
        break;
      } catch (error) {
        if (error instanceof TenderLost) this.remove(active.batch.id);
        if (signal.aborted) break;
        log.error("a job could not be continued; trying again", { job: jobId, error: String(error) });
        await clock.sleep(TROUBLE_DELAY_MS, signal).catch(() => {});
      }
    }
    this.#running--;
    active.works.delete(jobId);
    if (this.#stopping.signal.aborted) return;
    // The batch may have ended while its job was being created.
    this.#closer.close(jobId);
    this.#track(this.#foreign.look());
    this.#line(active);
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
    this.#active.delete(id);
    this.#onBatchIdle(id);
  }
}
