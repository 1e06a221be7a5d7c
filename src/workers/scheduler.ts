import { type BatchStatus, isTerminal } from "../contract/statuses.ts";
import type { ShownJob } from "../contract/upstream-jobs.ts";
import { cancelBatch } from "../domain/batches/cancel-batch.ts";
import type { Waiting } from "../domain/health/waiting.ts";
import { identityOf, providerModel } from "../domain/offers.ts";
import type { BatchQueue } from "../domain/ports/stores.ts";
import type { BatchRecord } from "../domain/records.ts";
import { Admission } from "./admission.ts";
import { advanceBatch, endOf } from "./advance-batch.ts";
import type { WorkerDeps } from "./deps.ts";
import { Intake } from "./intake.ts";
import { ItemPool } from "./items/item-pool.ts";
import { JobPool } from "./jobs/job-pool.ts";
import { recover } from "./recovery.ts";
import { reportEnded } from "./report-ended.ts";
import type { PoolLoad, WorkerPool } from "./worker-pool.ts";

const TROUBLE_DELAY_MS = 1000;
const WAKES_AT_ONCE = 20;
/** Batches whose images are not made yet. */
const UNMADE: readonly BatchStatus[] = ["queued", "running"];

/**
 * Decides which batches are worked on. Every batch in hand is either in a pool (its items are being made) or being
 * advanced (results, money). The others that have not ended wait in the database, which owns the truth.
 */
export class Scheduler {
  readonly #deps: WorkerDeps;
  readonly #pools: ReadonlySet<WorkerPool>;
  readonly #items: WorkerPool;
  /** The pools of job providers by their names. */
  readonly #jobs: ReadonlyMap<string, JobPool>;
  readonly #admission: Admission;
  readonly #intake: Intake;
  /** Batches being advanced now, and whether they must be advanced once more afterwards. */
  readonly #advancing = new Map<string, { again: boolean }>();
  /** Batches that are about to be cancelled: no other step may end them meanwhile. */
  readonly #cancelling = new Set<string>();
  readonly #work = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  #isRunning = false;
  #isPaused = false;

  constructor(deps: WorkerDeps) {
    this.#deps = deps;
    this.#admission = new Admission(deps.stores);
    this.#intake = new Intake(deps);
    const wake = (batchId: string) => this.wake(batchId);
    const itemProviders = deps.providers.filter((provider) => provider.kind === "item");
    const jobProviders = deps.providers.filter((provider) => provider.kind === "job");
    this.#items = new ItemPool(deps, itemProviders, wake);
    this.#jobs = new Map(jobProviders.map((provider) => [provider.name, new JobPool(deps, provider, wake)]));
    this.#pools = new Set([this.#items, ...this.#jobs.values()]);
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  /** The items and jobs that run now, and how many may run at once, over all providers. */
  get load(): PoolLoad & { isPaused: boolean } {
    const loads = [...this.#pools].map((pool) => pool.load);
    return {
      running: loads.reduce((sum, load) => sum + load.running, 0),
      paid: loads.reduce((sum, load) => sum + load.paid, 0),
      slots: loads.reduce((sum, load) => sum + load.slots, 0),
      isPaused: this.#isPaused,
    };
  }

  /**
   * Begins no work while paused. Running work and requests go on. A restart ends the pause.
   */
  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    for (const pool of this.#pools) pool.setPaused(isPaused);
  }

  /** Cleans up after a killed process, then continues the batches that have not ended. */
  async start(): Promise<void> {
    await recover(this.#deps);
    const { batches } = this.#deps.stores.read;
    const yieldSometimes = yieldEvery(WAKES_AT_ONCE);
    for (const batch of await batches.unmadeByOthers(this.#deps.providers.map(({ name }) => name))) {
      await this.#handOver(batch);
      await yieldSometimes();
    }
    this.#isRunning = true;
    for (const batch of await batches.withStatus(["running", "processing_results", "settling"])) {
      this.#admission.resume(batch);
      this.wake(batch.id);
      await yieldSometimes();
    }
    for (const queue of await batches.waitingQueues()) {
      this.#admission.expect(queue);
      await this.#takeNext(queue);
      await yieldSometimes();
    }
    for (const pool of this.#pools) await pool.start();
  }

  /** Makes the scheduler look at a batch that may have work: it is new, or an item of it has ended. */
  wake(batchId: string): void {
    if (!this.#isRunning || this.#cancelling.has(batchId)) return;
    if (this.#admission.has(batchId)) this.#beginToAdvance(batchId);
    else this.#track(this.#takeInHand(batchId));
  }

  /**
   * Cancels a batch and stops its work; an ended batch stays as it is. Throws `BATCH_IMAGE_CANCEL_FAILED` when the job
   * of an upstream could not be cancelled: the batch is cancelled all the same. Repeating the call tries the job again.
   */
  async cancel(batchId: string): Promise<void> {
    const failed = await this.#cancelHeld(batchId);
    if (failed) reportEnded(this.#deps.feed, batchId, "cancelled", failed);
    try {
      await Promise.all([...this.#pools].map((pool) => pool.abort(batchId)));
    } finally {
      if (failed) this.#forget(batchId);
    }
  }

  /** Reading back takes time. Meanwhile no item of the batch starts, and no step forward ends the batch first. */
  async #cancelHeld(batchId: string): Promise<string[] | null> {
    this.#cancelling.add(batchId);
    for (const pool of this.#pools) pool.hold(batchId);
    let failed: string[] | null = null;
    try {
      failed = await cancelBatch(this.#deps, batchId, () => endOf(this.#deps));
    } finally {
      this.#cancelling.delete(batchId);
      if (failed === null) this.wake(batchId);
    }
    return failed;
  }

  /** Returns why the items of a batch cannot be made now; null when they can. */
  waitingOf(batchId: string): Waiting | null {
    for (const pool of this.#pools) {
      const waiting = pool.waitingOf(batchId);
      if (waiting) return waiting;
    }
    return null;
  }

  /** Returns the jobs of a batch that are at work at an upstream. */
  jobsOf(batchId: string): ShownJob[] {
    return [...this.#jobs.values()].flatMap((pool) => pool.jobsOf(batchId));
  }

  /**
   * Takes no more work, gives running work `graceMs` to end, and keeps the rest for the next start. Requests that are
   * paid may take as long as they need, unless `isAbandoned`.
   */
  async stop(graceMs: number, isAbandoned = false): Promise<void> {
    this.#isRunning = false;
    this.#stopping.abort();
    this.#intake.stop();
    await Promise.all([...this.#pools].map((pool) => pool.stop(graceMs, isAbandoned)));
    while (this.#work.size > 0) await Promise.allSettled([...this.#work]);
  }

  #track(work: Promise<void>): void {
    const tracked = work.finally(() => this.#work.delete(tracked));
    this.#work.add(tracked);
  }

  /** Begins with a new batch, unless it must wait in its queue or has ended. */
  async #takeInHand(batchId: string): Promise<void> {
    try {
      const batch = await this.#deps.stores.read.batches.byId(batchId);
      if (batch === null || isTerminal(batch.status) || !this.#isRunning) return;
      if (this.#admission.enter(batch)) this.#beginToAdvance(batchId);
    } catch (error) {
      const facts = { batch: batchId, error: String(error) };
      this.#later("batch could not be looked up; trying again", facts, () => this.wake(batchId));
    }
  }

  /** Begins with a batch in hand. One that is being advanced is advanced once more afterwards. */
  #beginToAdvance(batchId: string): void {
    const current = this.#advancing.get(batchId);
    if (current) {
      current.again = true;
      return;
    }
    this.#advancing.set(batchId, { again: false });
    const work = this.#advance(batchId).finally(() => {
      const { again } = this.#advancing.get(batchId) ?? { again: false };
      this.#advancing.delete(batchId);
      if (again) this.wake(batchId);
    });
    this.#track(work);
  }

  async #advance(batchId: string): Promise<void> {
    try {
      const isHeld = () => this.#cancelling.has(batchId);
      // A cancelled batch has left the admission: nobody wants its input any more.
      const isUnwanted = () => isHeld() || !this.#admission.has(batchId);
      const status = await advanceBatch(this.#deps, this.#intake, batchId, isUnwanted);
      if (isHeld()) return;
      if (status === null || isTerminal(status)) return this.#forget(batchId);
      if (status === "running") await this.#makeImages(batchId);
    } catch (error) {
      this.#deps.log.error("batch could not be advanced; trying again", {
        batch: batchId,
        error: String(error),
      });
      await this.#deps.clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).catch(() => {});
      const current = this.#advancing.get(batchId);
      if (current) current.again = true;
    }
  }

  async #makeImages(batchId: string): Promise<void> {
    const batch = await this.#deps.stores.read.batches.byId(batchId);
    if (this.#cancelling.has(batchId)) return;
    if (!batch || isTerminal(batch.status)) return this.#forget(batchId);
    (this.#jobs.get(batch.provider) ?? this.#items).add(batch);
  }

  /**
   * Gives a batch whose provider is not configured any more to one of the same type and address. Without one it waits.
   */
  async #handOver(batch: BatchRecord): Promise<void> {
    const { providers, models, log, stores } = this.#deps;
    const heir = providers.find(
      (provider) =>
        identityOf(provider) === batch.upstream && providerModel(provider, models, batch.model) !== null,
    );
    const facts = { batch: batch.id, from: batch.provider, to: heir?.name };
    if (!heir) return log.warn("the provider of a batch is not configured any more; the batch waits", facts);
    await stores.write(async (tx) => {
      if (!UNMADE.includes((await tx.batches.locked(batch.id))?.status ?? "completed")) return;
      await tx.batches.update(batch.id, { provider: heir.name });
    });
    log.warn("the provider of a batch is not configured any more; another one takes over", facts);
  }

  /** Forgets a batch that has ended, and begins with the next one of its queue. */
  #forget(batchId: string): void {
    for (const pool of this.#pools) pool.remove(batchId);
    const queue = this.#admission.leave(batchId);
    if (queue) this.#refill(queue);
  }

  #refill(queue: BatchQueue): void {
    if (this.#isRunning) this.#track(this.#takeNext(queue));
  }

  async #takeNext(queue: BatchQueue): Promise<void> {
    try {
      for (;;) {
        const taken = await this.#admission.refill(queue);
        if (taken.length === 0) return;
        for (const { id } of taken) this.wake(id);
      }
    } catch (error) {
      const facts = { error: String(error) };
      this.#later("the next batches could not be looked up; trying again", facts, () => this.#refill(queue));
    }
  }

  #later(trouble: string, facts: Record<string, unknown>, work: () => void): void {
    this.#deps.log.error(trouble, facts);
    this.#deps.clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).then(work, () => {});
  }
}

/** Returns a function that yields to the event loop at every `count`th call, so that thousands of batches hold up no request. */
function yieldEvery(count: number): () => Promise<void> {
  let calls = 0;
  return async () => {
    if (++calls % count === 0) await new Promise((resume) => setImmediate(resume));
  };
}
