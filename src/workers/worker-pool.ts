import type { ImageProvider } from "../domain/ports/image-provider.ts";
import type { BatchRecord } from "../domain/records.ts";

/** Where the items of running batches are made, one lane per provider. */
export interface WorkerPool {
  readonly provider: ImageProvider;
  /** Continues what an earlier process left behind at the provider. Does not wait for its end. */
  start(): Promise<void>;
  /** What it works on now, and how much of it at once at most: items, or jobs of whole batches. */
  readonly load: { running: number; places: number };
  /** While paused nothing new is begun; what runs goes on. */
  setPaused(isPaused: boolean): void;
  /** Works on the batch until none of its items is pending; no effect when it is there already. */
  add(batch: BatchRecord): void;
  /** Starts no more items of the batch until it is added again; what runs goes on. */
  hold(batchId: string): void;
  /** Forgets a batch that has ended. */
  remove(batchId: string): void;
  /**
   * Stops what runs for the batch, which has ended, here and at the provider. Does not wait for it to end. Can be
   * repeated. Throws `BATCH_IMAGE_CANCEL_FAILED` when the provider could not be told.
   */
  abort(batchId: string): Promise<void>;
  /** Takes no more work; what runs gets `graceMs` where ending it helps, the rest is parked for the next start. */
  stop(graceMs: number): Promise<void>;
}
