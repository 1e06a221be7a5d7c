import type { Waiting } from "../../contract/waiting.ts";
import type { Transaction } from "../ports/stores.ts";

/**
 * Notes in the record of a running batch that a worker could not use its provider, and why. `sinceMs`: since when no image of the
 * batch could be made, by any worker. `isOver`: for longer than `outageMs`, and no other worker that is alive is making one.
 */
export async function noteOutage(
  tx: Pick<Transaction, "batches" | "items">,
  {
    batchId,
    workerId,
    nowMs,
    outageMs,
    waiting,
  }: { batchId: string; workerId: string; nowMs: number; outageMs: number; waiting: Waiting },
): Promise<{ sinceMs: number; isOver: boolean }> {
  // Others note the beginning and the end, too: only the locked record is true.
  const batch = await tx.batches.locked(batchId);
  if (batch?.status !== "running") return { sinceMs: nowMs, isOver: false };
  const sinceMs = batch.waitingSinceMs ?? nowMs;
  await tx.batches.update(batchId, { waitingSinceMs: sinceMs, waiting });
  const isOver = nowMs - sinceMs >= outageMs && !(await tx.items.areLeasedBesides(batchId, workerId));
  return { sinceMs, isOver };
}
