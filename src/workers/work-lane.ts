import type { ImageProvider } from "../domain/ports/image-provider.ts";
import type { BatchRecord } from "../domain/records.ts";

/** Where the items of running batches are made, one lane per provider. */
export interface WorkLane {
  readonly provider: ImageProvider;
  /** Works on the batch until none of its items is pending; no effect when it is there already. */
  add(batch: BatchRecord): void;
  /** Forgets a batch that has ended. */
  remove(batchId: string): void;
  /** Stops what runs for the batch, which was cancelled. Does not wait for it to end. */
  abort(batchId: string): Promise<void>;
  /** Takes no more work; what runs gets `graceMs` where ending it helps, the rest is parked for the next start. */
  stop(graceMs: number): Promise<void>;
}
