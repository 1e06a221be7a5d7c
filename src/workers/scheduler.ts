import { isTerminal } from "../contract/statuses.ts";
import { cancelBatch } from "../domain/batches/end-batch.ts";
import type { BatchQueue, BegunBatch } from "../domain/ports/batches.ts";
import { coalesced } from "../kernel/coalesced.ts";
import { createYield } from "../kernel/yield.ts";
import { advanceBatch, becomeOwner, endOf, reportEnded } from "./advance-batch.ts";
import type { PoolLoad, WorkerPool } from "./batch-set.ts";
import type { WorkerDeps } from "./deps.ts";
import { ItemPool } from "./items/item-pool.ts";
import { JobPool } from "./jobs/job-pool.ts";
import { Admission, Intake } from "./queued-batches.ts";
import { handOver, recover, releaseLeases, removeLateOrphans, removeOrphansOf } from "./recovery.ts";

const TROUBLE_DELAY_MS = 1000;

/**
 * Decides which batches are worked on here. Every active batch is either in a pool (its items are being made) or being
 * advanced (results, money). The items of a batch are made by any number of processes; all else is done by its owner.
 */
export class Scheduler {
  readonly #deps: WorkerDeps;
  readonly #pools: ReadonlySet<WorkerPool>;
  readonly #items: WorkerPool;
  readonly #jobs: ReadonlyMap<string, JobPool>;
  readonly #intake: Intake;
  readonly #active = new Map<string, BatchQueue>();
  readonly #admission: Admission;
  /** Batches being advanced now, and whether they must be advanced once more afterwards. */
  readonly #advancing = new Map<string, boolean>();
  /** Batches that are about to be cancelled: no other step may end them meanwhile. */
  readonly #cancelling = new Set<string>();
  readonly #work = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  readonly #removeOrphans = coalesced(() => removeLateOrphans(this.#deps));
  #isRunning = false;
  #isPaused = false;

  constructor(deps: WorkerDeps) {
    this.#deps = deps;
    this.#admission = new Admission(deps, {
      onTaken: (batch) => this.#isRunning && this.#take(batch),
      isActive: (batchId) => this.#active.has(batchId),
    });
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
    const sum = (what: keyof PoolLoad) => [...this.#pools].reduce((all, { load }) => all + load[what], 0);
    return { running: sum("running"), paid: sum("paid"), slots: sum("slots"), isPaused: this.#isPaused };
  }

  /** Begins no work while paused, nor do other processes. Running work and requests go on. A restart ends the pause. */
  setPaused(isPaused: boolean): void {
    this.#pause(isPaused);
    this.#track(this.#deps.presence.setPaused(isPaused));
  }

  #pause(isPaused: boolean): void {
    this.#isPaused = isPaused;
    for (const pool of this.#pools) pool.setPaused(isPaused);
  }

  /** Cleans up after a killed process, then goes on with its batches; later, when others hold up the database. */
  async start(): Promise<void> {
    const { presence } = this.#deps;
    if (presence.isAlone) await recover(this.#deps);
    this.#isRunning = true;
    presence.follow({
      poll: (news) => this.poll(news),
      reset: () => this.#reset(),
      setPaused: (isPaused) => isPaused !== this.#isPaused && this.#pause(isPaused),
    });
    const begin = async (): Promise<void> => {
      await handOver(this.#deps);
      await this.poll();
      for (const pool of this.#pools) pool.start();
    };
    const later = (error: unknown) =>
      this.#later("no work could be looked for", { error: String(error) }, () => begin().catch(later));
    await (presence.isAlone ? begin() : begin().catch(later));
  }

  /**
   * Looks for work that has come without a call, by other processes, and lets go what has ended. `areSomeGone`: processes
   * have died or left, and what they did is taken over.
   */
  async poll({ areSomeGone = false }: { areSomeGone?: boolean } = {}): Promise<void> {
    if (!this.#isRunning) return;
    const { stores, presence } = this.#deps;
    await releaseLeases(this.#deps);
    const yieldSometimes = createYield(20);
    const ended = new Set(this.#active.keys());
    for (const batch of await stores.read.batches.begun()) {
      ended.delete(batch.id);
      if (!this.#isForUs(batch)) this.#drop(batch.id);
      else if (this.#isRunning && !this.#active.has(batch.id)) this.#take(batch);
      await yieldSometimes();
    }
    for (const batchId of ended) await this.#forgetIfEnded(batchId);
    await this.#admission.takeAll(() => this.#isRunning);
    for (const pool of this.#pools) await pool.poll();
    if (!areSomeGone || !this.#isRunning) return;
    await handOver(this.#deps);
    for (const pool of this.#pools) pool.start();
    if (presence.isFirst) this.#track(this.#removeOrphans());
  }

  /** Makes the scheduler look at a batch that may have work: an item of it has ended, or it is new in the `queue`. */
  wake(batchId: string, queue?: BatchQueue): void {
    if (!this.#isRunning || this.#cancelling.has(batchId)) return;
    if (this.#active.has(batchId)) this.#beginToAdvance(batchId);
    else if (queue === undefined || !this.#admission.isFull(queue)) this.#track(this.#takeById(batchId));
  }

  /**
   * Cancels a batch and stops its work; an ended batch stays as it is. Throws `BATCH_IMAGE_CANCEL_FAILED` when the job
   * of an upstream could not be cancelled: the batch is cancelled all the same. Repeating the call tries the job again.
   * `tellOthers` is called before an upstream is asked, which may take long.
   */
  async cancel(batchId: string, tellOthers = () => {}): Promise<void> {
    const failed = await this.#cancelHeld(batchId).finally(tellOthers);
    if (failed) reportEnded(this.#deps.feed, batchId, "cancelled", failed);
    try {
      await Promise.all([...this.#pools].map((pool) => pool.abort(batchId)));
    } finally {
      if (failed) await this.#end(batchId);
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

  /**
   * Takes no more work, gives running work `graceMs` to end, and keeps the rest for the next start. Requests that are
   * paid may take as long as they need, unless `isAbandoned`.
   */
  async stop(graceMs: number, isAbandoned = false): Promise<void> {
    this.#isRunning = false;
    this.#stopping.abort();
    this.#intake.stop();
    const stops = [...this.#pools].map((pool) => pool.stop(graceMs, isAbandoned));
    await Promise.all(stops);
    while (this.#work.size > 0) await Promise.allSettled([...this.#work]);
  }

  #track(work: Promise<void>): void {
    const tracked = work.finally(() => this.#work.delete(tracked));
    this.#work.add(tracked);
  }

  /** Begins with a batch, unless it must wait in its queue or has ended. */
  async #takeById(batchId: string): Promise<void> {
    try {
      const batch = await this.#deps.stores.read.batches.byId(batchId);
      if (batch === null || isTerminal(batch.status) || !this.#isRunning) return;
      if (batch.status === "queued") this.#takeNext(batch);
      else this.#take(batch);
    } catch (error) {
      const facts = { batch: batchId, error: String(error) };
      this.#later("batch could not be looked up", facts, () => this.wake(batchId));
    }
  }

  #take({ id, provider, apiKeyId }: BatchQueue & { id: string }): void {
    this.#active.set(id, { provider, apiKeyId });
    this.#beginToAdvance(id);
  }

  /** Whether this process has something to do for a batch: the images of items are made by all, the rest by its owner. */
  #isForUs({ provider, status, owner }: BegunBatch): boolean {
    const { presence } = this.#deps;
    if (owner === null || owner === presence.id) return presence.isOurs(provider);
    return status === "running" && !this.#jobs.has(provider) && presence.isOurs(provider);
  }

  /** Advances an active batch. If it is being advanced already, it is advanced once more afterwards. */
  #beginToAdvance(batchId: string): void {
    if (this.#advancing.has(batchId)) {
      this.#advancing.set(batchId, true);
      return;
    }
    this.#advancing.set(batchId, false);
    const work = this.#advance(batchId).finally(() => {
      const again = this.#advancing.get(batchId);
      this.#advancing.delete(batchId);
      if (again) this.wake(batchId);
    });
    this.#track(work);
  }

  async #advance(batchId: string): Promise<void> {
    try {
      const isHeld = () => this.#cancelling.has(batchId);
      // A cancelled batch is not active any more: nobody wants its input.
      const isUnwanted = () => isHeld() || !this.#active.has(batchId);
      const status = await advanceBatch(this.#deps, this.#intake, batchId, isUnwanted);
      if (isHeld()) return;
      if (status === null || isTerminal(status)) return await this.#end(batchId);
      if (status === "running") await this.#makeImages(batchId);
    } catch (error) {
      const facts = { batch: batchId, error: String(error) };
      this.#deps.log.error("batch could not be advanced; trying again", facts);
      await this.#deps.clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).catch(() => {});
      this.#advancing.set(batchId, true);
    }
  }

  async #makeImages(batchId: string): Promise<void> {
    const batch = await this.#deps.stores.read.batches.byId(batchId);
    if (this.#cancelling.has(batchId)) return;
    if (!batch || isTerminal(batch.status)) return this.#forget(batchId);
    const jobs = this.#jobs.get(batch.provider);
    if (jobs && !(await becomeOwner(this.#deps, batchId))) return this.#drop(batchId);
    if (this.#active.has(batchId)) (jobs ?? this.#items).add(batch);
  }

  /** A batch has ended here: images that no record names can only be those of processes that died. */
  async #end(batchId: string): Promise<void> {
    this.#forget(batchId);
    if (!this.#deps.presence.isAlone) await removeOrphansOf(this.#deps, [batchId]);
  }

  #forget(batchId: string): void {
    const queue = this.#active.get(batchId);
    this.#drop(batchId);
    if (queue) this.#takeNext(queue);
  }

  #drop(batchId: string): void {
    for (const pool of this.#pools) pool.remove(batchId);
    this.#active.delete(batchId);
  }

  /** Forgets all active batches: other processes have taken them over. */
  #reset(): void {
    for (const pool of this.#pools) pool.reset();
    this.#active.clear();
  }

  /** An active batch that is not at work any more. If another process has ended it, the reading of its input ends, too. */
  async #forgetIfEnded(batchId: string): Promise<void> {
    const batch = await this.#deps.stores.read.batches.byId(batchId);
    if (!this.#cancelling.has(batchId) && (batch === null || isTerminal(batch.status))) this.#forget(batchId);
  }

  #takeNext(queue: BatchQueue): void {
    if (!this.#isRunning) return;
    const later = (error: unknown) =>
      this.#later("no next batch could be looked up", { error: String(error) }, () => this.#takeNext(queue));
    this.#track(this.#admission.takeNext(queue).catch(later));
  }

  #later(trouble: string, facts: Record<string, unknown>, work: () => void): void {
    this.#deps.log.error(`${trouble}; trying again`, facts);
    this.#deps.clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).then(work, () => {});
  }
}
