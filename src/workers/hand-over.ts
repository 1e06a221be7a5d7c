import type { BatchStatus } from "../contract/statuses.ts";
import { identityOf, providerModel } from "../domain/offers.ts";
import type { BatchRecord } from "../domain/records.ts";
import { createYield } from "../kernel/yield.ts";
import type { WorkerDeps } from "./deps.ts";

/** Batches whose images are not made yet. */
const UNMADE: readonly BatchStatus[] = ["queued", "running"];

/**
 * Gives the batches whose provider no living process has configured to another one of the same type and address. Without
 * one they wait.
 */
export async function handOver(deps: WorkerDeps): Promise<void> {
  const yieldSometimes = createYield(20);
  for (const batch of await deps.stores.read.batches.unmadeByOthers(deps.presence.providers)) {
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
