import { named, type Waiting } from "../../contract/waiting.ts";
import type { Transaction } from "../ports/stores.ts";
import { type Block, WAITING_CODE_OF } from "./provider-health.ts";

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
  // The clock may have been ahead when the wait began.
  const sinceMs = Math.min(batch.waitingSinceMs ?? nowMs, nowMs);
  await tx.batches.update(batchId, { waitingSinceMs: sinceMs, waiting });
  const isOver = nowMs - sinceMs >= outageMs && !(await tx.items.areLeasedBesides(batchId, workerId));
  return { sinceMs, isOver };
}

/** Returns what a batch reports while it waits for a block to end. */
export function waitingOn({ provider, trouble, message, untilMs, said = null }: Block): Waiting {
  return {
    code: WAITING_CODE_OF[trouble],
    message: named(provider, message),
    untilMs,
    ...(said ? { said } : {}),
  };
}

/**
 * Returns the waiting of a batch by the blocks of its providers: that of the provider that may be asked first. Null when one
 * of them has no block.
 */
export function waitingFor(blocks: readonly (Block | null)[]): Waiting | null {
  const known = blocks.filter((block) => block !== null);
  if (known.length < blocks.length) return null;
  const atMs = ({ untilMs }: Block) => untilMs ?? Number.POSITIVE_INFINITY;
  const [first] = known.sort((a, b) => atMs(a) - atMs(b));
  if (first) return waitingOn(first);
  const message =
    "The provider of this batch is not configured, nor another one of the same type and address.";
  return { code: "PROVIDER_NOT_CONFIGURED", message, untilMs: null };
}
