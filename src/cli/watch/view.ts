import type { Batch } from "../../client/read-batch.ts";

/** Shows batches while they run. There may be several kinds: lines for a log, a picture for a terminal. */
export interface WatchView {
  /** Called after each look at any of the batches, with all of them. */
  show(batches: readonly Batch[]): void;
  /** The end: every batch has ended, or the command was stopped. */
  close(): void;
}
