import { failLeased, outputsPrefix } from "../domain/batches/finish-item.ts";
import { removeUnknownFiles } from "../domain/files/expiry.ts";
import { removeUnlinkedImages } from "../domain/links/linked-images.ts";
import { DRAWINGS, isPaid } from "../domain/offers.ts";
import { removeUnknownAnswers } from "../domain/realtime/kept-answers.ts";
import type { WorkerDeps } from "./deps.ts";
import { UNKNOWN_OUTCOME } from "./items/run-item.ts";

/** A worker that was killed while it stored an image of a batch that had just stopped leaves a file without a row. */
const STOPPED_LATELY_MS = 24 * 3_600_000;

/**
 * Cleans up before any work, when an earlier process may have been killed. Removes half-written files and images that
 * were stored but not recorded (their items are made again), and drops all leases. Only batches that were at work, or
 * were stopped in the last day, are checked: queued ones have no image yet, and there can be thousands of them.
 */
export async function recover(deps: WorkerDeps): Promise<void> {
  const leases = await dropLeases(deps);
  const begun = await deps.stores.read.batches.withStatus(["running", "processing_results", "settling"]);
  const stopped = await deps.stores.read.batches.stoppedSince(deps.clock.nowMs() - STOPPED_LATELY_MS);
  // The time in which nothing ran is no outage.
  const waiting = begun.filter(({ waitingSinceMs }) => waitingSinceMs !== null);
  for (const { id } of waiting)
    await deps.stores.write((tx) => tx.batches.update(id, { waitingSinceMs: null }));
  let orphans = 0;
  for (const { id } of [...begun, ...stopped]) {
    const known = new Set((await deps.stores.read.outputs.ofBatch(id)).map((output) => output.blobKey));
    for (const { key } of await deps.blobs.list(outputsPrefix(id))) {
      if (known.has(key)) continue;
      await deps.blobs.delete(key);
      orphans++;
    }
  }
  await removeUnknownInputs(deps);
  await removeUnknownFiles(deps);
  await removeUnknownAnswers(deps);
  await removeUnlinkedImages(deps);
  const queued = (await deps.stores.read.batches.countByStatus()).queued ?? 0;
  if (begun.length + queued + orphans > 0) {
    deps.log.info("continuing after the last run", { batches: begun.length + queued, leases, orphans });
  }
}

/**
 * Ends the leases of a process that is gone. A request to a paid upstream may have been sent for each of their items:
 * one more is allowed, and marked.
 */
async function dropLeases({ stores, providers, clock }: WorkerDeps): Promise<number> {
  const free = new Set(providers.filter((provider) => !isPaid(provider)).map(({ name }) => name));
  return stores.write(async (tx) => {
    for (const item of await tx.items.leased()) {
      const { id, attempts, failedAt, maybePaid, leaseToken, batchId, jobId } = item;
      const batch = await tx.batches.locked(batchId);
      // A provider that is not configured any more may have been paid.
      const isFree = item.provider === null || free.has(item.provider) || batch?.upstream === DRAWINGS;
      // The record of its job knows what was sent.
      if (leaseToken === null || isFree || jobId !== null) continue;
      if (maybePaid === "twice") {
        if (batch) await failLeased(tx, batch, { ...item, leaseToken }, UNKNOWN_OUTCOME, clock.nowMs());
      } else
        await tx.items.giveBack(id, leaseToken, { notBeforeMs: 0, attempts, failedAt, maybePaid: "once" });
    }
    return tx.items.dropLeases();
  });
}

/** Reference images of requests that were never accepted: stored, then the process died before the commit. */
async function removeUnknownInputs(deps: WorkerDeps): Promise<void> {
  const ids = new Set((await deps.blobs.list("inputs/")).map(({ key }) => key.split("/")[1] ?? ""));
  for (const id of ids) {
    if ((await deps.stores.read.batches.byId(id)) === null) await deps.blobs.deleteAll(`inputs/${id}/`);
  }
}
