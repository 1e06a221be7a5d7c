import { type BatchStatus, isTerminal } from "../contract/statuses.ts";
import { processResults, settleBatch, startProcessing } from "../domain/batches/end-batch.ts";
import { type BatchEnd, hasItems, startBatch } from "../domain/batches/lifecycle.ts";
import type { Feed } from "../domain/feed.ts";
import type { BatchRecord } from "../domain/records.ts";
import type { WorkerDeps } from "./deps.ts";

/**
 * Runs every step of a batch that needs no provider: the reading of its input, and once no item is pending, its results and
 * its money. Each step is a transaction of its own and is published on the feed. After a crash between two steps it goes on
 * from there. Begins no step while `isHeld`, and leaves input, results and money to the owner of the batch. Returns the
 * status that was reached; null for a batch that had ended before.
 */
export async function advanceBatch(
  deps: WorkerDeps,
  readInput: (batch: BatchRecord) => Promise<BatchStatus | null>,
  batchId: string,
  isHeld: () => boolean,
): Promise<BatchStatus | null> {
  const { stores, feed, clock } = deps;
  const nowMs = () => clock.nowMs();
  for (;;) {
    const batch = await stores.read.batches.byId(batchId);
    if (batch === null || isTerminal(batch.status)) return null;
    const reached = isHeld() ? null : await step(batch);
    if (reached === null) return batch.status;
    feed.publish({ type: "batch", batchId, status: reached });
    if (isTerminal(reached)) return reached;
  }

  async function step(batch: BatchRecord): Promise<BatchStatus | null> {
    const { status } = batch;
    if (status === "queued" && !hasItems(batch)) return readInput(batch);
    // The most frequent case needs no transaction, which would wait for the disk.
    if (batch.successCount + batch.failCount < batch.itemCount) return null;
    if (status === "queued") return (await startBatch(stores, batchId, nowMs())) ? "running" : null;
    if (status === "running") {
      const { id } = deps.presence;
      return (await startProcessing(stores, batchId, id, nowMs())) ? "processing_results" : null;
    }
    if (!(await becomeOwner(deps, batchId))) return null;
    if (status === "processing_results")
      return (await processResults(deps, batchId, nowMs)) ? "settling" : null;
    if (status === "settling") return (await settleBatch(stores, batchId, endOf(deps))) ? "completed" : null;
    return null;
  }
}

/** Returns the end of a batch that ends now, and when its outputs may be deleted. */
export function endOf(deps: WorkerDeps): BatchEnd {
  const nowMs = deps.clock.nowMs();
  const { outputRetentionMs } = deps;
  return { nowMs, outputsExpireAtMs: outputRetentionMs === 0 ? null : nowMs + outputRetentionMs };
}

/** Publishes on the feed that a batch has ended early, and which items have failed with it. */
export function reportEnded(
  feed: Feed,
  batchId: string,
  status: BatchStatus,
  failedCustomIds: readonly string[],
): void {
  for (const customId of failedCustomIds) feed.publish({ type: "item", batchId, customId, status: "failed" });
  feed.publish({ type: "batch", batchId, status });
}

/** Another process owns the batch: whatever this one was about to write does not count. */
export class OwnerLost extends Error {
  constructor(batchId: string) {
    super(`another process has taken over the batch ${batchId}`);
  }
}

/** Makes this process the owner of a batch, unless another one that is alive owns it. Returns whether it is. */
export async function becomeOwner(
  { stores, presence }: Pick<WorkerDeps, "stores" | "presence">,
  batchId: string,
): Promise<boolean> {
  const { id } = presence;
  if ((await stores.read.batches.ownerOf(batchId)) === id) return true;
  return (await stores.write((tx) => tx.batches.becomeOwner(batchId, id))).isOurs;
}

/**
 * The same dependencies with stores that write only as long as this process owns the batch. Else a write rejects with
 * `OwnerLost`, and changes nothing.
 */
export function asOwner(deps: WorkerDeps, batchId: string): WorkerDeps {
  const { stores, presence } = deps;
  const { id } = presence;
  const write: typeof stores.write = (work) =>
    stores.write(async (tx) => {
      await tx.lock("batch", batchId);
      if ((await tx.batches.ownerOf(batchId)) !== id) throw new OwnerLost(batchId);
      return work(tx);
    });
  return { ...deps, stores: { ...stores, write } };
}
