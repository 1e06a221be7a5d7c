import type { Stores } from "../ports/stores.ts";
import { moveBatch } from "./lifecycle.ts";

/** Takes a queued batch to `running`. Answers whether it is running now because of this call. */
export function startBatch(stores: Stores, batchId: string, nowMs: number): Promise<boolean> {
  return stores.write(async (tx) => {
    const batch = await tx.batches.byId(batchId);
    return batch?.status === "queued" && (await moveBatch(tx, batch, "running", nowMs)).isMoved;
  });
}
