import { type BatchStatus, isTerminal } from "../../contract/statuses.ts";
import { grant, placeHold, settleHold } from "../billing/ledger.ts";
import type { Stores, Transaction } from "../ports/stores.ts";
import type { BatchError, BatchRecord } from "../records.ts";

/**
 * The life of a batch: the meaning of each status.
 *
 * - `queued`: accepted; no item was started. The money is on hold, unless the items are still to be read from an input.
 * - `running`: items are being made. Each finished item has its files on disk before its row says so.
 * - `processing_results`: no item is pending. Files are read back, compared with their hashes and given their names.
 * - `settling`: the results are final. Only the money is left to move.
 * - `completed`: paid for what succeeded, the rest of the hold is released.
 * - `failed`: the batch as a whole could not be processed; what had succeeded is read back and paid for.
 * - `cancelled`: stopped by the caller; what had succeeded is read back and paid for.
 * - `output_deleted`: ended earlier, and its files are deleted. The money does not change.
 *
 * `money` is the effect of the move on the hold.
 */
interface Transition {
  from: readonly BatchStatus[];
  to: BatchStatus;
  money: "settle" | "none";
}

export const TRANSITIONS: readonly Transition[] = [
  { from: ["queued"], to: "running", money: "none" },
  { from: ["running"], to: "processing_results", money: "none" },
  { from: ["processing_results"], to: "settling", money: "none" },
  { from: ["settling"], to: "completed", money: "settle" },
  { from: ["queued", "running", "processing_results"], to: "failed", money: "settle" },
  { from: ["queued", "running", "processing_results", "settling"], to: "cancelled", money: "settle" },
  { from: ["completed", "failed", "cancelled"], to: "output_deleted", money: "none" },
];

/** When a batch ends, and when its images may be deleted; null keeps them. */
export interface BatchEnd {
  nowMs: number;
  outputsExpireAtMs: number | null;
}

/**
 * Writes a new batch as `queued`, with the first line of its history. Its hold comes with its items: see `holdFor`.
 */
export async function openBatch(tx: Transaction, batch: BatchRecord, nowMs: number): Promise<void> {
  await tx.batches.insert({ ...batch, status: "queued" });
  await tx.batches.appendEvent({ batchId: batch.id, from: null, to: "queued", atMs: nowMs });
}

/** Places the hold of a batch, which may be granted. Throws `BATCH_IMAGE_INSUFFICIENT_BALANCE`. */
export async function holdFor(
  tx: Transaction,
  batch: BatchRecord,
  nowMs: number,
  { isGranted = false }: { isGranted?: boolean } = {},
): Promise<void> {
  if (isGranted) await grant(tx, batch, batch.id, batch.holdMicroUsd, nowMs);
  await placeHold(tx, batch, nowMs);
}

/** Whether the items of a batch are written. Else they are still to be read from its input. */
export function hasItems({ input, inputReadAtMs }: Pick<BatchRecord, "input" | "inputReadAtMs">): boolean {
  return input === null || inputReadAtMs !== null;
}

/**
 * Moves a batch to another status: the only writer of `status` after creation. In the transaction `tx`, which has locked
 * the batch, it checks that the move is allowed and that the batch still is where the caller saw it, appends to the
 * history, and does what the move does to the money. Returns false, without any change, when the batch has moved on meanwhile.
 * Throws for a move that is not in the table. No move is dated before the batch was made.
 */
export async function moveBatch(
  tx: Transaction,
  batch: BatchRecord,
  to: BatchStatus,
  nowMs: number,
  facts: { error?: BatchError; outputsExpireAtMs?: number | null } = {},
): Promise<{ isMoved: boolean }> {
  const transition = TRANSITIONS.find((t) => t.to === to && t.from.includes(batch.status));
  if (!transition) throw new Error(`a batch cannot move from ${batch.status} to ${to}`);
  // A clock that was set back must not end a batch before it was made, or delete its images too early.
  const atMs = Math.max(nowMs, batch.createdAtMs);
  if (!(await tx.batches.changeStatus(batch.id, batch.status, to)).isChanged) return { isMoved: false };
  await tx.batches.appendEvent({ batchId: batch.id, from: batch.status, to, atMs });
  if (facts.error) await tx.batches.update(batch.id, { error: facts.error });
  if (to === "output_deleted") await tx.batches.update(batch.id, { outputDeletedAtMs: atMs });
  else if (isTerminal(to)) {
    const keptMs = batch.input?.resultsKeptMs ?? null;
    const asked = keptMs === null ? [] : [atMs + keptMs];
    const retained = facts.outputsExpireAtMs == null ? [] : [facts.outputsExpireAtMs + (atMs - nowMs)];
    const ends = [...asked, ...retained];
    const outputsExpireAtMs = ends.length === 0 ? null : Math.min(...ends);
    await tx.batches.update(batch.id, { endedAtMs: atMs, outputsExpireAtMs });
  }
  if (transition.money === "settle") {
    const { earnedMicroUsd: actualMicroUsd } = await tx.items.sums(batch.id);
    await settleHold(tx, batch, actualMicroUsd, atMs);
    await tx.batches.update(batch.id, { actualMicroUsd, settledAtMs: atMs });
  }
  return { isMoved: true };
}

/** Takes a queued batch to `running`, as the first claim of an item does. Returns whether this call did it. */
export async function startIn(tx: Transaction, batchId: string, nowMs: number): Promise<boolean> {
  const batch = await tx.batches.locked(batchId);
  if (batch?.status !== "queued" || !hasItems(batch)) return false;
  return (await moveBatch(tx, batch, "running", nowMs)).isMoved;
}

/** The same in a transaction of its own. */
export function startBatch(stores: Stores, batchId: string, nowMs: number): Promise<boolean> {
  return stores.write((tx) => startIn(tx, batchId, nowMs));
}
