import type { ItemStatus } from "../../contract/statuses.ts";
import { failItem, finishItem, type LeasedItem } from "../../domain/batches/finish-item.ts";
import { type GeneratedImages, type ItemProvider, ProviderError } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { backoffMs } from "../../kernel/backoff.ts";
import type { WorkerDeps } from "../deps.ts";
import { buildImageRequest } from "../image-request.ts";

/** Tries of one item in all, the first included. */
export const MAX_ATTEMPTS = 3;
const RETRY_BACKOFF = { baseMs: 1000, capMs: 30_000 };
/** The pause between two tries to record after a failure of the storage. */
const TROUBLE_DELAY_MS = 1000;

/** `retry`: the item waits for another try. `lost`: it is no longer this worker's. */
export type ItemOutcome = ItemStatus | "retry" | "lost";

/** The images of an item, or why there is none. `aborted`: the signal stopped it. */
export type ItemAttempt = GeneratedImages | ProviderError | "aborted";

/** Asks the provider for one item's image. Never rejects. */
export async function makeItem(
  deps: WorkerDeps,
  provider: ItemProvider,
  batch: BatchRecord,
  item: LeasedItem,
  signal: AbortSignal,
): Promise<ItemAttempt> {
  try {
    const images = await provider.generate(await buildImageRequest(deps, batch, item), signal);
    return signal.aborted ? "aborted" : images;
  } catch (error) {
    if (signal.aborted) return "aborted";
    if (error instanceof ProviderError) return error;
    deps.log.error("provider failed unexpectedly", { error: String(error) });
    return new ProviderError("PROVIDER_ITEM_FAILED", "The provider failed.", { retryable: true });
  }
}

/**
 * Records the result of an attempt. Never rejects: after a failure of the storage it tries to record the same image
 * again, because making it again would cost again. Returns `lost` when the signal stopped it meanwhile.
 */
export async function recordItem(
  deps: WorkerDeps,
  item: LeasedItem,
  attempt: ItemAttempt,
  signal: AbortSignal,
): Promise<ItemOutcome> {
  for (;;) {
    try {
      if (attempt === "aborted") return await giveBack(deps, item, 0, item.attempts);
      if (attempt instanceof ProviderError) return await recordFailure(deps, item, attempt);
      return (await finishItem(deps, item, attempt, () => deps.clock.nowMs())) ?? "lost";
    } catch (error) {
      const facts = { batch: item.batchId, item: item.id, error: String(error) };
      deps.log.error("item could not be recorded; trying again", facts);
      if (signal.aborted) return "lost";
      await deps.clock.sleep(TROUBLE_DELAY_MS, signal).catch(() => {});
    }
  }
}

async function recordFailure(deps: WorkerDeps, item: LeasedItem, error: ProviderError): Promise<ItemOutcome> {
  const attempts = item.attempts + 1;
  if (error.retryable && attempts < MAX_ATTEMPTS) {
    const delayMs = error.retryAfterMs ?? backoffMs(attempts, RETRY_BACKOFF, deps.random);
    return giveBack(deps, item, delayMs, attempts);
  }
  return (await failItem(deps.stores, item, error, deps.clock.nowMs())) ?? "lost";
}

async function giveBack(
  deps: WorkerDeps,
  item: LeasedItem,
  delayMs: number,
  attempts: number,
): Promise<ItemOutcome> {
  // 0 is due whatever the clock shows: it may have been set back by then.
  const notBeforeMs = delayMs === 0 ? 0 : deps.clock.nowMs() + delayMs;
  const isOurs = await deps.stores.write(
    async (tx) => (await tx.items.giveBack(item.id, item.leaseToken, { notBeforeMs, attempts })).isOurs,
  );
  return isOurs ? "retry" : "lost";
}
