import { outputsPrefix } from "../domain/batches/finish-item.ts";
import type { WorkerDeps } from "./deps.ts";

/** A worker that was killed while it stored an image of a batch that had just stopped leaves a file without a row. */
const STOPPED_LATELY_MS = 24 * 3_600_000;

/**
 * Cleans up before any work, when an earlier process may have been killed. Removes half-written files and images that
 * were stored but not recorded (their items are made again), and drops all leases. Only batches that were at work, or
 * were stopped in the last day, are checked: queued ones have no image yet, and there can be thousands of them.
 */
export async function recover(deps: WorkerDeps): Promise<void> {
  const leases = await deps.stores.write((tx) => tx.items.dropLeases());
  const begun = await deps.stores.read.batches.withStatus(["running", "processing_results", "settling"]);
  const stopped = await deps.stores.read.batches.stoppedSince(deps.clock.nowMs() - STOPPED_LATELY_MS);
  let orphans = 0;
  for (const { id } of [...begun, ...stopped]) {
    const known = new Set((await deps.stores.read.outputs.ofBatch(id)).map((output) => output.blobKey));
    for (const key of await deps.blobs.list(outputsPrefix(id))) {
      if (known.has(key)) continue;
      await deps.blobs.delete(key);
      orphans++;
    }
  }
  await removeUnknownInputs(deps);
  const queued = (await deps.stores.read.batches.countByStatus()).queued ?? 0;
  if (begun.length + queued + orphans > 0) {
    deps.log.info("continuing after the last run", { batches: begun.length + queued, leases, orphans });
  }
}

/** Reference images of requests that were never accepted: stored, then the process died before the commit. */
async function removeUnknownInputs(deps: WorkerDeps): Promise<void> {
  const ids = new Set((await deps.blobs.list("inputs/")).map((key) => key.split("/")[1] ?? ""));
  for (const id of ids) {
    if ((await deps.stores.read.batches.byId(id)) === null) await deps.blobs.deleteAll(`inputs/${id}/`);
  }
}
