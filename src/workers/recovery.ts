import type { BatchStatus } from "../contract/statuses.ts";
import { failLeased, outputsPrefix, recordItemCall } from "../domain/batches/finish-item.ts";
import { DRAWINGS, identityOf, mayBePaidTwice, providerModel } from "../domain/models.ts";
import type { BatchRecord } from "../domain/records.ts";
import { removeUnrecorded } from "../domain/retention.ts";
import { groupBy } from "../kernel/json.ts";
import { createYield } from "../kernel/pacing.ts";
import type { WorkerDeps } from "./deps.ts";
import { stoppedOutcome } from "./items/make-item.ts";

type Stored = Pick<WorkerDeps, "stores" | "blobs">;

/** A worker that was killed while it stored an image of a batch that had just stopped leaves a file without a row. */
const STOPPED_LATELY_MS = 24 * 3_600_000;
const STOPPED: readonly BatchStatus[] = ["failed", "cancelled", "output_deleted"];
/** The same of a worker that died beside others, which see that within seconds. */
const ENDED_LATELY_MS = 3_600_000;

/**
 * Cleans up for a process that is alone, before any work: an earlier one may have been killed. Gives back what that had
 * leased, and removes what no record names: half-written files, and images that were stored but not recorded (their
 * items are made again). Only batches that were at work, or were stopped in the last day, are checked: queued ones have no
 * image yet, and there can be thousands of them.
 */
export async function recover(deps: WorkerDeps): Promise<void> {
  const leases = await releaseLeases(deps);
  const begun = await deps.stores.read.batches.withStatus(["running", "processing_results", "settling"]);
  const stopped = await deps.stores.read.batches.endedSince(deps.clock.nowMs() - STOPPED_LATELY_MS, STOPPED);
  let orphans = 0;
  for (const { id } of [...begun, ...stopped]) orphans += await removeOrphans(deps, id);
  await removeUnknown(deps, 0);
  const queued = (await deps.stores.read.batches.unfinishedByStatus()).queued ?? 0;
  if (begun.length + queued + orphans > 0) {
    deps.log.info("continuing after the last run", { batches: begun.length + queued, leases, orphans });
  }
}

/**
 * Gives back the items that workers had leased which are gone. A request to a paid upstream may have been sent for each, and
 * counts as one: see `WorkerDeps.unknownOutcome`. Nothing more is sent for a known task. Returns how many there were.
 */
export async function releaseLeases(deps: WorkerDeps): Promise<number> {
  const { items } = deps.stores.read;
  const batchIds = new Set((await items.abandoned()).map(({ batchId }) => batchId));
  let count = 0;
  for (const batchId of batchIds) count += await releaseLeasesOf(deps, batchId);
  return count;
}

function releaseLeasesOf(
  { stores, providers, clock, unknownOutcome }: WorkerDeps,
  batchId: string,
): Promise<number> {
  const free = new Set(providers.filter((provider) => !mayBePaidTwice(provider)).map(({ name }) => name));
  return stores.write(async (tx) => {
    const batch = await tx.batches.locked(batchId);
    const abandoned = await tx.items.abandoned(batchId);
    for (const item of abandoned) {
      const { id, attempts, failedAt, usage, leaseToken } = item;
      if (batch === null || leaseToken === null) continue;
      // A provider that is not configured any more may have been paid.
      const isFree = item.provider === null || free.has(item.provider) || batch.upstream === DRAWINGS;
      const isUnknown = !isFree && item.task === null;
      const leased = { ...item, leaseToken };
      if (isUnknown && (unknownOutcome === "stop" || item.maybePaid === "twice")) {
        await failLeased(tx, batch, leased, stoppedOutcome(item), clock.nowMs());
        continue;
      }
      const maybePaid = isUnknown ? "once" : item.maybePaid;
      if (isUnknown) await recordItemCall(tx, batch, leased, { nowMs: clock.nowMs() });
      await tx.items.giveBack(id, leaseToken, { notBeforeMs: 0, attempts, failedAt, maybePaid, usage });
    }
    return abandoned.length;
  });
}

/**
 * Removes the images of batches that ended in the last hour and that no record names: a worker that is gone may have
 * stored them after the end. Asks the bucket for each batch, which takes long. Never rejects: retention removes the rest later.
 */
export async function removeLateOrphans(deps: WorkerDeps): Promise<void> {
  const { stores, clock, log } = deps;
  const sinceMs = clock.nowMs() - ENDED_LATELY_MS;
  const ended = await stores.read.batches.endedSince(sinceMs, [...STOPPED, "completed"]).catch((error) => {
    log.warn("images that no record names could not be looked for", { error: String(error) });
    return [];
  });
  for (const { id } of ended) if (!deps.ending.aborted) await removeOrphansOf(deps, id);
}

/**
 * Removes the images of a batch that no record names. While the batch is at work, a worker may be about to record
 * them. Returns how many there were.
 */
async function removeOrphans(deps: Stored, batchId: string): Promise<number> {
  return removeUnnamed(deps, batchId, await deps.blobs.list(outputsPrefix(batchId)));
}

/** Removes those of the listed images of a batch that no record names. Returns how many there were. */
export async function removeUnnamed(
  { stores, blobs }: Stored,
  batchId: string,
  listed: readonly { key: string }[],
): Promise<number> {
  const known = new Set((await stores.read.outputs.ofBatch(batchId)).map(({ blobKey }) => blobKey));
  const orphans = listed.filter(({ key }) => !known.has(key));
  for (const { key } of orphans) await blobs.delete(key);
  return orphans.length;
}

/** The same for a batch that has ended, beside other processes. Retention removes the rest later. */
export async function removeOrphansOf(deps: WorkerDeps, batch: string): Promise<void> {
  await removeOrphans(deps, batch).catch((error) => {
    deps.log.warn("images that no record names could not be removed", { batch, error: String(error) });
  });
}

/**
 * Removes what requests have stored that were never accepted: their process died before the commit. Younger things may be
 * those of requests that are being accepted by another process; a process that is alone takes 0 before its first request.
 * Returns how many files these were.
 */
export async function removeUnknown(deps: Stored, olderThanMs: number): Promise<number> {
  return (await removeUnknownInputs(deps, olderThanMs)) + (await removeUnrecorded(deps, olderThanMs));
}

async function removeUnknownInputs({ stores, blobs }: Stored, olderThanMs: number): Promise<number> {
  let removed = 0;
  for (const [id, inputs] of groupBy(await blobs.list("inputs/"), ({ key }) => key.split("/")[1] ?? "")) {
    const isOld = inputs.every(({ ageMs }) => ageMs >= olderThanMs);
    if (!isOld || (await stores.read.batches.byId(id)) !== null) continue;
    await blobs.deleteAll(`inputs/${id}/`);
    removed += inputs.length;
  }
  return removed;
}

/** Batches whose images are not made yet. */
const UNMADE: readonly BatchStatus[] = ["queued", "running"];

/**
 * Gives the batches whose provider no living process has configured to another one of the same type and address. Without
 * one they wait.
 */
export async function handOver(deps: WorkerDeps): Promise<void> {
  const yieldSometimes = createYield(20);
  for (const batch of await deps.stores.read.batches.unmadeByOthers(
    deps.presence.providers,
    deps.goingOn.kind,
  )) {
    await handOverOne(deps, batch);
    await yieldSometimes();
  }
}

async function handOverOne(
  { providers, models, log, stores }: WorkerDeps,
  batch: BatchRecord,
): Promise<void> {
  const heir = providers.find(
    (provider) =>
      identityOf(provider) === batch.upstream && providerModel(provider, models, batch.model) !== null,
  );
  const facts = { batch: batch.id, from: batch.provider, to: heir?.name };
  if (!heir) return log.warn("the provider of a batch is not configured any more; the batch waits", facts);
  await stores.write(async (tx) => {
    if (!UNMADE.includes((await tx.batches.locked(batch.id))?.status ?? "completed")) return;
    await tx.batches.update(batch.id, { provider: heir.name });
  });
  log.warn("the provider of a batch is not configured any more; another one takes over", facts);
}
