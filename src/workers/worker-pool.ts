export interface PoolLoad {
  /** The items (or jobs of whole batches) that run now. */
  running: number;
  /** The running requests that a stop waits for, because they cost money. */
  paid: number;
  /** The most that may run at once. */
  slots: number;
}

/** What a pool asks of the scheduler. */
export interface PoolEvents {
  /** Called when nothing of a batch is being made here any more: it may be done. */
  onBatchIdle(batchId: string): void;
  /**
   * Whether work may begin: not while paused, while the service stops, or when the leases of this process may be lost; and
   * none of a batch that is stopped or to be cancelled.
   */
  mayBegin(batchId?: string): boolean;
}

/** Makes the items of batches. It finds batches with items to start in the database. */
export interface WorkerPool {
  readonly load: PoolLoad;
  /** Called when there may be items to start, or when `mayBegin` has changed. Running work goes on. */
  wake(): void;
  /**
   * Reads what other processes have changed: leases that were lost, and items that came back. Also called at the start.
   * `areSomeGone`: what they did is taken over.
   */
  poll(areSomeGone?: boolean): Promise<void>;
  /** Stops all work and forgets all batches: others have taken over. */
  reset(): void;
  /** Forgets a batch that has ended. */
  remove(batchId: string): void;
  /**
   * Waits until the requests and jobs of a batch that is being cancelled have ended, where they are paid. `mayBegin` is false
   * for the batch: what is recorded until then belongs to it. `onRefused` is called each time when the upstream could not be
   * told to stop a job; the wait goes on.
   */
  settle(batchId: string, onRefused: (cause: unknown) => void): Promise<void>;
  /**
   * Stops the running work of an ended batch, here and at the provider, without waiting for its end. Can be repeated.
   * Throws `BATCH_IMAGE_CANCEL_FAILED` when the provider did not accept the cancellation.
   */
  abort(batchId: string): Promise<void>;
  /**
   * Takes no more work: `mayBegin` is false. Running items get `graceMs` to end, requests that are paid for as long as they need, unless
   * `isAbandoned`. The rest is kept for the next start.
   */
  stop(graceMs: number, isAbandoned?: boolean): Promise<void>;
}

/** Pause after a failure of the storage, before the next try. */
export const TROUBLE_DELAY_MS = 1000;

/** Work in the background. */
export class Tasks {
  readonly #tasks = new Set<Promise<void>>();

  /** Counts the work until it ends. */
  track(work: Promise<void>): void {
    const tracked = work.finally(() => this.#tasks.delete(tracked));
    this.#tasks.add(tracked);
  }

  /** Resolves when no work is left. */
  async idle(): Promise<void> {
    while (this.#tasks.size > 0) await Promise.allSettled([...this.#tasks]);
  }
}
