import { failItem, finishItem, type LeasedItem } from "../../domain/batches/finish-item.ts";
import { readOutput } from "../../domain/images/output-images.ts";
import { executedModel } from "../../domain/models.ts";
import {
  type JobItem,
  type JobProvider,
  type JobResult,
  ProviderError,
} from "../../domain/ports/image-provider.ts";
import type { BatchError, BatchRecord } from "../../domain/records.ts";
import { backoffMs } from "../../kernel/backoff.ts";
import type { WorkerDeps } from "../deps.ts";
import { buildImageRequest } from "../image-request.ts";

const MAX_SUBMISSIONS = 3;
const SUBMIT_BACKOFF = { baseMs: 2000, capMs: 60_000 };
const POLL_TROUBLE_LIMIT = 20;

/**
 * Has an upstream make all pending items of a batch as one job, and records every result. Continues a job that an
 * earlier process submitted. Returns null when every item has ended, or the reason why the batch as a whole failed.
 * Rejects with the signal's reason when aborted; the job then goes on upstream and is found again later.
 */
export async function runJob(
  deps: WorkerDeps,
  provider: JobProvider,
  batch: BatchRecord,
  signal: AbortSignal,
): Promise<BatchError | null> {
  const items = await leaseAll(deps, batch);
  signal.throwIfAborted();
  const upstreamName = await findOrSubmit(deps, provider, batch, items, signal);
  if (upstreamName === null) return null;
  if (upstreamName instanceof ProviderError) return jobError(upstreamName.message);
  const end = await pollUntilEnd(deps, provider, upstreamName, batch.id, signal);
  if (end !== "succeeded") return jobError(end);
  await recordResults(deps, provider, batch, upstreamName, items, signal);
  return null;
}

function leaseAll(deps: WorkerDeps, { id: batchId, provider }: BatchRecord): Promise<LeasedItem[]> {
  const nowMs = deps.clock.nowMs();
  return deps.stores.write(async (tx) => {
    const leased: LeasedItem[] = [];
    if ((await tx.batches.byId(batchId))?.status !== "running") return leased;
    for (;;) {
      const token = deps.ids.leaseToken();
      const item = await tx.items.claim(batchId, {
        token,
        nowMs,
        provider,
        isPaid: false,
        which: "any",
        mostSwitches: Number.MAX_SAFE_INTEGER,
      });
      if (!item) return leased;
      leased.push({ ...item, leaseToken: token });
    }
  });
}

/** Returns the upstream's name of the job, the error of its submission, or null when the batch runs no more. */
async function findOrSubmit(
  deps: WorkerDeps,
  provider: JobProvider,
  batch: BatchRecord,
  items: readonly LeasedItem[],
  signal: AbortSignal,
): Promise<string | ProviderError | null> {
  const known = await deps.stores.read.upstreamJobs.ofBatch(batch.id);
  if (known?.upstreamName) return known.upstreamName;
  const jobId = known?.jobId ?? deps.ids.recordId("job");
  if (!known) {
    const job = { batchId: batch.id, jobId, upstreamName: null, createdAtMs: deps.clock.nowMs() };
    const isWanted = await deps.stores.write(async (tx) => {
      if ((await tx.batches.byId(batch.id))?.status !== "running") return false;
      await tx.upstreamJobs.insert(job);
      return true;
    });
    if (!isWanted) return null;
    signal.throwIfAborted();
  }
  // The response to an earlier submission may be lost, but not the job: look for it before paying for another.
  let mayBeThere = known !== null;
  for (let attempt = 1; ; attempt++) {
    try {
      const found = mayBeThere ? await provider.find(jobId, signal) : null;
      const name = found ?? (await provider.submit(jobId, requestsOf(deps, batch, items), signal));
      // A batch that was ended meanwhile needs the name to stop the job.
      await deps.stores.write((tx) => tx.upstreamJobs.setUpstreamName(batch.id, name));
      signal.throwIfAborted();
      return name;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof ProviderError)) throw error;
      if (!error.retryable || attempt >= MAX_SUBMISSIONS) return error;
      mayBeThere = true;
      const delayMs = error.retryAfterMs ?? backoffMs(attempt, SUBMIT_BACKOFF, deps.random);
      await deps.clock.sleep(delayMs, signal);
    }
  }
}

async function* requestsOf(
  deps: WorkerDeps,
  batch: BatchRecord,
  items: readonly LeasedItem[],
): AsyncGenerator<JobItem> {
  const model = executedModel(deps.models, batch.model);
  for (const item of items)
    yield { key: item.customId, request: await buildImageRequest(deps, batch, item, model) };
}

/** Returns `succeeded`, or the reason why the job ended otherwise. Some failed polls do not end the job. */
async function pollUntilEnd(
  deps: WorkerDeps,
  provider: JobProvider,
  upstreamName: string,
  batchId: string,
  signal: AbortSignal,
): Promise<string> {
  const close = () => deps.stores.write((tx) => tx.upstreamJobs.close(batchId, deps.clock.nowMs()));
  for (let trouble = 0; ; ) {
    try {
      const status = await provider.poll(upstreamName, signal);
      if (status.state !== "running") await close();
      if (status.state === "succeeded") return "succeeded";
      if (status.state !== "running") return status.message;
      trouble = 0;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof ProviderError)) throw error;
      if (!error.retryable || ++trouble > POLL_TROUBLE_LIMIT) return error.message;
    }
    await deps.clock.sleep(provider.pollMs, signal);
  }
}

/** Results are matched by key, never by position; an item that the upstream forgot fails. */
async function recordResults(
  deps: WorkerDeps,
  provider: JobProvider,
  batch: BatchRecord,
  upstreamName: string,
  items: readonly LeasedItem[],
  signal: AbortSignal,
): Promise<void> {
  const waiting = new Map(items.map((item) => [item.customId, item]));
  const publish = (item: LeasedItem, status: "success" | "failed" | null) => {
    const { batchId, customId } = item;
    if (status) deps.feed.publish({ type: "item", batchId, customId, status });
  };
  for await (const result of provider.results(upstreamName, signal)) {
    const item = waiting.get(result.key);
    if (!item) continue;
    waiting.delete(result.key);
    publish(item, await recordResult(deps, provider, batch, item, result));
  }
  for (const item of waiting.values()) {
    const message = "The provider's job ended without a result for this item.";
    publish(
      item,
      await failItem(
        deps.stores,
        batch,
        item,
        { code: "RESULT_MISSING", message, source: "provider" },
        deps.clock.nowMs(),
      ),
    );
  }
}

/** A result without a usable image is a failure of the item. */
async function recordResult(
  deps: WorkerDeps,
  provider: JobProvider,
  batch: BatchRecord,
  item: LeasedItem,
  result: JobResult,
): Promise<"success" | "failed" | null> {
  const nowMs = () => deps.clock.nowMs();
  try {
    if ("error" in result) throw result.error;
    const images = await readOutput(result.output, deps.inspector, provider);
    return await finishItem(deps, batch, item, { ...result.output, images }, nowMs);
  } catch (error) {
    if (!(error instanceof ProviderError)) throw error;
    return failItem(deps.stores, batch, item, error, nowMs());
  }
}

function jobError(message: string): BatchError {
  return { code: "BATCH_IMAGE_PROVIDER_SUBMIT_FAILED", message, source: "provider" };
}
