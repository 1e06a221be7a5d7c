import type { ItemError } from "../../contract/item-errors.ts";
import { recordCall } from "../health/record-call.ts";
import type { MadeImage } from "../images/output-images.ts";
import type { GeneratedImages, UpstreamUsage } from "../ports/image-provider.ts";
import type { Stores, Transaction } from "../ports/stores.ts";
import type { BatchRecord, ItemRecord, OutputRecord } from "../records.ts";
import type { ReadBackDeps } from "./read-back.ts";

/** An item that a worker holds a lease on. */
export type LeasedItem = ItemRecord & { leaseToken: string };

/** The images that a provider made for an item: at least one, each decoded. */
export type MadeItem = Omit<GeneratedImages, "images"> & { images: readonly MadeImage[] };

/** The batch of an item, as far as an outcome needs it. */
type Priced = Pick<BatchRecord, "model" | "price">;

/**
 * Stores the images of an item and records its success. The files are durable before the row names them. Returns null
 * when the lease was lost (the item was cancelled, or leased again): then the files are removed.
 */
export async function finishItem(
  deps: ReadBackDeps,
  batch: Priced,
  item: LeasedItem,
  made: MadeItem,
  nowMs: () => number,
): Promise<"success" | null> {
  const { modelVersion, seed = null, notes = [], usage = null } = made;
  const outputs: OutputRecord[] = [];
  for (const [imageIndex, { bytes, facts }] of made.images.entries()) {
    const blobKey = outputKey(item, imageIndex);
    const stored = await deps.blobs.put(blobKey, bytes);
    const { id: itemId, batchId } = item;
    outputs.push({ itemId, batchId, imageIndex, blobKey, ...stored, ...facts, entryName: null });
  }
  const mimeType = made.images[0]?.facts.mimeType ?? null;
  const work = async (tx: Transaction) => {
    const facts = { mimeType, imageCount: outputs.length, modelVersion, seed, notes, usage, error: null };
    const outcome = { status: "success" as const, ...facts, finishedAtMs: nowMs() };
    // First, because it locks the batch: all items of a batch wait for each other here.
    await tx.batches.addCounts(item.batchId, { success: 1, fail: 0 });
    if (!(await tx.items.finish(item.id, item.leaseToken, outcome)).isOurs) throw LOST;
    await tx.outputs.insertMany(outputs);
    await recordItemCall(tx, batch, item, outputs.length, usage, nowMs());
  };
  try {
    await deps.stores.write(work);
    deps.earlyReadBack.add(outputs);
    return "success";
  } catch (error) {
    if (error !== LOST) throw error;
  }
  // A commit that returned an error may have happened all the same: files that a row names stay.
  const named = new Set((await deps.stores.read.outputs.ofItem(item.id)).map((output) => output.blobKey));
  for (const { blobKey } of outputs) if (!named.has(blobKey)) await deps.blobs.delete(blobKey);
  return named.size > 0 ? "success" : null;
}

/** Undoes the transaction of an outcome that came too late. */
const LOST = new Error("the lease of the item was lost");

/** Records the final failure of an item. Returns null when its lease was lost. */
export async function failItem(
  stores: Stores,
  batch: Priced,
  item: LeasedItem,
  error: ItemError & { modelVersion?: string | null },
  nowMs: number,
): Promise<"failed" | null> {
  const { isOurs } = await stores.write(async (tx) => {
    await tx.lock("batch", item.batchId);
    return failLeased(tx, batch, item, error, nowMs);
  });
  return isOurs ? "failed" : null;
}

/** The same in a transaction that has locked the batch. */
export async function failLeased(
  tx: Transaction,
  batch: Priced,
  item: LeasedItem,
  { code, message, source, modelVersion = null }: ItemError & { modelVersion?: string | null },
  nowMs: number,
): Promise<{ isOurs: boolean }> {
  const error: ItemError = { code, message, source };
  const made = { mimeType: null, imageCount: 0, modelVersion, seed: null, notes: [], usage: null };
  const outcome = { status: "failed" as const, ...made, error, finishedAtMs: nowMs };
  if (!(await tx.items.finish(item.id, item.leaseToken, outcome)).isOurs) return { isOurs: false };
  await tx.batches.addCounts(item.batchId, { success: 0, fail: 1 });
  await recordItemCall(tx, batch, item, 0, null, nowMs);
  return { isOurs: true };
}

/** Adds the last call for an item to the sums of its provider. Only a success is billed. */
export function recordItemCall(
  tx: Transaction,
  { model, price }: Priced,
  { provider, maybePaid, priceMicroUsd }: LeasedItem,
  images: number,
  usage: UpstreamUsage | null,
  nowMs: number,
): Promise<void> {
  if (provider === null) return Promise.resolve();
  const isMaybePaidTwice = maybePaid === "twice";
  const billedMicroUsd = images > 0 ? (priceMicroUsd ?? price.imageMicroUsd) : 0;
  const call = { provider, model, images, isError: images === 0, isMaybePaidTwice, billedMicroUsd, usage };
  return recordCall(tx, call, nowMs);
}

/** Where the images of a batch are kept. */
export function outputsPrefix(batchId: string): string {
  return `outputs/${batchId}/`;
}

/** The lease is part of the name, so that a worker that lost it cannot touch the files of its successor. */
function outputKey(item: LeasedItem, imageIndex: number): string {
  return `${outputsPrefix(item.batchId)}${item.id}-${item.leaseToken.slice(0, 12)}-${imageIndex}`;
}
