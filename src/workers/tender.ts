import type { WorkerDeps } from "./deps.ts";

/** Another process tends the batch: whatever this one was about to write does not count. */
export class TenderLost extends Error {
  constructor(batchId: string) {
    super(`another process has taken over the batch ${batchId}`);
  }
}

/** Makes this process the tender of a batch, unless another one that is alive tends it. Returns whether it is. */
export async function isTendedHere(
  { stores, presence }: Pick<WorkerDeps, "stores" | "presence">,
  batchId: string,
): Promise<boolean> {
  const { id } = presence;
  if ((await stores.read.batches.tenderOf(batchId)) === id) return true;
  return (await stores.write((tx) => tx.batches.tend(batchId, id))).isOurs;
}

/**
 * The same dependencies with stores that write only as long as this process tends the batch. Else a write rejects with
 * `TenderLost`, and changes nothing.
 */
export function asTender(deps: WorkerDeps, batchId: string): WorkerDeps {
  const { stores, presence } = deps;
  const { id } = presence;
  const write: typeof stores.write = (work) =>
    stores.write(async (tx) => {
      await tx.lock("batch", batchId);
      if ((await tx.batches.tenderOf(batchId)) !== id) throw new TenderLost(batchId);
      return work(tx);
    });
  return { ...deps, stores: { ...stores, write } };
}
