import type { BatchRecord } from "../domain/records.ts";

export interface PoolLoad {
  /** The items (or jobs of whole batches) that run now. */
  running: number;
  /** Those of them that a stop waits for, because they cost money. */
  paid: number;
  /** The most that may run at once. */
  slots: number;
}

/** Makes the items of running batches. */
export interface WorkerPool {
  readonly load: PoolLoad;
  /** Begins the work that does not belong to an active batch. Does not wait for its end. Can be repeated. */
  start(): void;
  /** Reads what other processes have changed: leases that were lost, and items that came back. */
  poll(): Promise<void>;
  /** Stops all work and forgets all batches: others have taken over. */
  reset(): void;
  /** While paused, no work is begun; running work goes on. */
  setPaused(isPaused: boolean): void;
  /** Works on the batch until none of its items is pending. Does nothing for a batch that is active already. */
  add(batch: BatchRecord): void;
  /** Starts no more items of the batch until it is added again; running items go on. */
  hold(batchId: string): void;
  /** Forgets a batch that has ended. */
  remove(batchId: string): void;
  /**
   * Stops the running work of an ended batch, here and at the provider, without waiting for its end. Can be repeated.
   * Throws `BATCH_IMAGE_CANCEL_FAILED` when the provider did not accept the cancellation.
   */
  abort(batchId: string): Promise<void>;
  /**
   * Takes no more work. Running items get `graceMs` to end, requests that are paid for as long as they need, unless
   * `isAbandoned`. The rest is kept for the next start.
   */
  stop(graceMs: number, isAbandoned?: boolean): Promise<void>;
}

/** The active batches of a pool, in the order of fairness, and the pool's work in the background. */
export class BatchSet<T extends { batch: BatchRecord }> {
  readonly #byId = new Map<string, T>();
  /** API key → batch id → batch. Those that were served least recently come first. */
  readonly #byKey = new Map<string, Map<string, T>>();
  readonly #tasks = new Set<Promise<void>>();

  get(batchId: string): T | undefined {
    return this.#byId.get(batchId);
  }

  /** All of them; they may be deleted meanwhile. */
  all(): T[] {
    return [...this.#byId.values()];
  }

  /** Whether this very entry is active: its batch may have been deleted and added again. */
  has(active: T): boolean {
    return this.#byId.get(active.batch.id) === active;
  }

  add(active: T): void {
    const { id, apiKeyId } = active.batch;
    const batches = this.#byKey.get(apiKeyId) ?? new Map<string, T>();
    this.#byKey.set(apiKeyId, batches.set(id, active));
    this.#byId.set(id, active);
  }

  delete({ batch: { id, apiKeyId } }: T): void {
    const batches = this.#byKey.get(apiKeyId);
    batches?.delete(id);
    if (batches?.size === 0) this.#byKey.delete(apiKeyId);
    this.#byId.delete(id);
  }

  /**
   * Returns the next batch that is ready: of the key that was served least recently, the batch that was. Both then come
   * last, so neither a large batch nor a key with many batches holds up others. Null when none is ready.
   */
  next(isReady: (active: T) => boolean): T | null {
    for (const [key, batches] of this.#byKey) {
      for (const [id, active] of batches) {
        if (!isReady(active)) continue;
        this.#byKey.delete(key);
        this.#byKey.set(key, batches);
        batches.delete(id);
        batches.set(id, active);
        return active;
      }
    }
    return null;
  }

  /** Counts work in the background until it ends. It must not reject. */
  track(work: Promise<void>): void {
    const tracked = work.finally(() => this.#tasks.delete(tracked));
    this.#tasks.add(tracked);
  }

  /** Resolves when no tracked work is left. */
  async idle(): Promise<void> {
    while (this.#tasks.size > 0) await Promise.all(this.#tasks);
  }
}
