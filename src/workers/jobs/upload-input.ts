import { failLeased } from "../../domain/batches/finish-item.ts";
import type { UpstreamJobRecord } from "../../domain/ports/batches.ts";
import { type JobItem, ProviderError } from "../../domain/ports/image-provider.ts";
import type { ItemRecord } from "../../domain/records.ts";
import { buildImageRequest } from "../image-request.ts";
import { type JobWork, ticketFor, waitAfter } from "./send-job.ts";

/**
 * Uploads the input of a job. An item that cannot be built fails alone. Items that do not fit into the job go back to
 * their batch. Rejects with `ProviderError` when the upstream refuses the input.
 */
export async function uploadInput(work: JobWork, job: UpstreamJobRecord): Promise<void> {
  const { deps, provider, batch, jobId, signal, uploads } = work;
  const { stores, clock } = deps;
  const items = await buildItems(work);
  const hasReferences = hasAny(items[0]);
  if (items.length === 0) {
    await stores.write((tx) => tx.upstreamJobs.update(jobId, { step: "done" }));
    return;
  }
  for (let tries = 1; ; tries++) {
    const ticket = await ticketFor(work);
    try {
      const input = await uploads.add(() => provider.upload(jobId, items, signal));
      await ticket.succeeded();
      const uploadedAtMs = clock.nowMs();
      await stores.write(async (tx) => {
        await tx.lock("batch", batch.id);
        // The batch may have been ended meanwhile: see `endJobs`.
        const { step } = (await tx.upstreamJobs.byId(jobId)) ?? {};
        const next = step === "new" ? ({ step: "uploaded" } as const) : {};
        await tx.upstreamJobs.update(jobId, { ...next, input, uploadedAtMs, hasReferences });
      });
      if (job.input !== null && job.input !== input)
        await provider.discard(job.input, signal).catch(() => {});
      return;
    } catch (error) {
      if (!(error instanceof ProviderError)) {
        ticket.dropped();
        throw error;
      }
      await ticket.failed(error, jobId);
      if (!error.retryable) throw error;
      await waitAfter(work, error, tries);
    }
  }
}

const hasAny = (item: JobItem | undefined) => (item?.request.references.length ?? 0) > 0;

/** The requests of the job's items, as many as fit. Only their texts are in memory. */
async function buildItems(work: JobWork): Promise<JobItem[]> {
  const { deps, provider, batch, jobId, model } = work;
  const items: JobItem[] = [];
  const others: number[] = [];
  let bytes = 0;
  for (const item of await deps.stores.read.items.ofJob(jobId)) {
    try {
      const references = await deps.stores.read.references.ofSource(item.batchId, item.sourceIndex);
      const request = await buildImageRequest(
        deps,
        batch,
        item,
        { provider, executedModel: model },
        references,
      );
      const line = { key: item.customId, request };
      const sum = bytes + (await provider.lineBytes(line));
      const fits = items.length === 0 || sum <= provider.limits.bytes;
      if (!fits || (provider.splitsReferences && items[0] && hasAny(items[0]) !== hasAny(line))) {
        others.push(item.id);
        continue;
      }
      bytes = sum;
      items.push(line);
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      await failItem(work, item, error);
    }
  }
  if (others.length > 0) {
    await deps.stores.write(async (tx) => {
      await tx.lock("batch", batch.id);
      await tx.items.releaseFromJob(others);
    });
    work.onReleased();
  }
  return items;
}

async function failItem({ deps, batch, jobId }: JobWork, item: ItemRecord, error: ProviderError) {
  const { stores, ids, clock, feed } = deps;
  const leaseToken = ids.leaseToken();
  const { isOurs } = await stores.write(async (tx) => {
    await tx.lock("batch", batch.id);
    await tx.items.leaseJob(jobId, leaseToken);
    return failLeased(tx, batch, { ...item, leaseToken }, error, clock.nowMs());
  });
  const { batchId, customId } = item;
  if (isOurs) feed.publish({ type: "item", batchId, customId, status: "failed" });
}
