import type { Stores } from "../ports/stores.ts";
import { type BatchEnd, moveBatch } from "./lifecycle.ts";

/**
 * The work of `settling`: in one transaction the price of the successful images is captured, the rest of the hold is
 * released, and the batch is `completed`. Repeating it changes nothing.
 */
export function settleBatch(stores: Stores, batchId: string, end: BatchEnd): Promise<boolean> {
  return stores.write(async (tx) => {
    const batch = await tx.batches.locked(batchId);
    if (batch?.status !== "settling") return false;
    return (await moveBatch(tx, batch, "completed", end.nowMs, { outputsExpireAtMs: end.outputsExpireAtMs }))
      .isMoved;
  });
}
