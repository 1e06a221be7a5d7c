import type { BatchQueue } from "../ports/batch-repository.ts";
import type { Stores } from "../ports/stores.ts";
import type { BatchRecord } from "../records.ts";
import { hasItems, moveBatch } from "./lifecycle.ts";

/** How many batches of one key are worked on at once with one provider. */
export const BATCHES_IN_HAND = 32;

/**
 * Takes the next batches of a queue in hand, up to its limit, in the order in which they came. A batch with items is
 * `running` then. The input of another one is to be read by the worker, which tends both. So thousands of waiting batches
 * cost no memory, and a key with many of them does not keep another key's batch waiting.
 */
export function admitBatches(
  stores: Stores,
  queue: BatchQueue,
  workerId: string,
  nowMs: () => number,
): Promise<BatchRecord[]> {
  return stores.write(async (tx) => {
    await tx.lock("key", queue.apiKeyId);
    const begun = await tx.batches.countBegun(queue);
    if (begun >= BATCHES_IN_HAND) return [];
    // Those whose input is being read are among the first.
    const first = await tx.batches.waiting(queue, 2 * BATCHES_IN_HAND);
    const free = BATCHES_IN_HAND - begun - first.filter(({ isTended }) => isTended).length;
    const admitted: BatchRecord[] = [];
    for (const { id, isTended } of first) {
      if (admitted.length >= free) break;
      const batch = isTended ? null : await tx.batches.locked(id);
      if (batch?.status !== "queued" || !(await tx.batches.tend(id, workerId)).isOurs) continue;
      if (!hasItems(batch)) admitted.push(batch);
      else if ((await moveBatch(tx, batch, "running", nowMs())).isMoved)
        admitted.push({ ...batch, status: "running" });
    }
    return admitted;
  });
}
