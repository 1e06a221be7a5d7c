import type { Waiting } from "../contract/waiting.ts";
import type { BatchRecord } from "../domain/records.ts";

export interface PoolLoad {
  /** The items (or jobs of whole batches) that run now. */
  running: number;
  /** Those of them that a stop waits for, because they cost money. */
  paid: number;
  /** The most that may run at once. */
  slots: number;
}

/** Makes the items of running batches with one provider. */
export interface WorkerPool {
  /**
   * Continues the work that processes which are gone have left at the provider. Does not wait for its end. Can be
   * repeated.
   */
  start(): Promise<void>;
  /** Looks at what other processes have done: at leases that are not held any more, and at items that came back. */
  look(): Promise<void>;
  /** Stops all work and forgets all batches: others have taken over. */
  letGo(): void;
  readonly load: PoolLoad;
  /** While paused, no work is begun; running work goes on. */
  setPaused(isPaused: boolean): void;
  /** Works on the batch until none of its items is pending. Does nothing for a batch that it has already. */
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
  /** Returns why the items of a batch cannot be made now; null when they can, or when the batch is not here. */
  waitingOf(batchId: string): Waiting | null;
  /**
   * Takes no more work. Running items get `graceMs` to end, requests that are paid for as long as they need, unless
   * `isAbandoned`. The rest is kept for the next start.
   */
  stop(graceMs: number, isAbandoned?: boolean): Promise<void>;
}
