import { nameImages } from "../downloads/entry-names.ts";
import type { Stores } from "../ports/stores.ts";
import { moveBatch } from "./lifecycle.ts";
import { ReadBack, type ReadBackDeps } from "./read-back.ts";

/**
 * Takes a running batch whose items all have ended to `processing_results`. The worker that does it goes on with the
 * batch: it owns it from then on.
 */
export function startProcessing(
  stores: Stores,
  batchId: string,
  workerId: string,
  nowMs: number,
): Promise<boolean> {
  return stores.write(async (tx) => {
    const batch = await tx.batches.locked(batchId);
    if (batch?.status !== "running" || (await tx.items.countByStatus(batchId)).pending > 0) return false;
    const { isMoved } = await moveBatch(tx, batch, "processing_results", nowMs);
    // The process that owned it has nothing left to do.
    if (isMoved) await tx.batches.setOwner(batchId, workerId);
    return isMoved;
  });
}

/**
 * The work of `processing_results`: reads every stored image back, compares it with its size and hash, gives it its
 * name in the ZIP, and takes the batch to `settling`. An item whose file is missing or damaged becomes a failure and
 * is not paid for. Can be repeated at any point: nothing is written before everything is checked.
 */
export async function processResults(
  deps: ReadBackDeps,
  batchId: string,
  nowMs: () => number,
): Promise<boolean> {
  const readBack = new ReadBack(deps.blobs);
  await readBack.read(await deps.stores.read.outputs.ofBatch(batchId));
  return deps.stores.write(async (tx) => {
    const batch = await tx.batches.locked(batchId);
    if (batch?.status !== "processing_results") return false;
    const outputs = await tx.outputs.ofBatch(batchId);
    // New outputs appeared after the read-back: it is repeated.
    if (!readBack.hasRead(outputs)) return false;
    const good = await readBack.failDamaged(tx, batch, outputs);
    const items = await tx.items.page(batchId, { afterPosition: -1, limit: batch.itemCount });
    const named = nameImages(items, good);
    await tx.outputs.setEntryNames(named.map(({ output, entryName }) => ({ ...output, entryName })));
    return (await moveBatch(tx, batch, "settling", nowMs())).isMoved;
  });
}
