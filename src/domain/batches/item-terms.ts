import { DEFAULT_RATIO, imageSizePx } from "../../contract/image-formats.ts";
import type { Needs } from "../offers.ts";
import type { ImageRequest } from "../ports/image-provider.ts";
import type { Repositories } from "../ports/stores.ts";
import type { BatchRecord, ItemRecord } from "../records.ts";

/** The picture of an item that says nothing about it. */
const PLAIN = { tier: "1K", ratio: DEFAULT_RATIO } as const;

/** Returns the picture that an item asks for: what it says itself, else the rest as its batch. */
export function askedOf(
  batch: Pick<BatchRecord, "mimeType">,
  item: Pick<ItemRecord, "tier" | "ratio" | "keepsRatio" | "askedMimeType">,
): Pick<ImageRequest, "tier" | "ratio" | "keepsRatio" | "size" | "mimeType"> {
  const tier = item.tier ?? PLAIN.tier;
  const ratio = item.ratio ?? PLAIN.ratio;
  const mimeType = item.askedMimeType ?? batch.mimeType;
  return { tier, ratio, keepsRatio: item.keepsRatio, size: imageSizePx(tier, ratio), mimeType };
}

/** Returns what the images of a batch cost so far, in micro-dollars; once it is settled, the final amount. */
export async function costOf(read: Repositories, batch: BatchRecord): Promise<number> {
  if (batch.actualMicroUsd !== null) return batch.actualMicroUsd;
  // Without an input, no item has a price of its own.
  if (batch.input === null) return batch.successCount * batch.price.imageMicroUsd;
  return (await read.items.sums(batch.id, batch.price)).earnedMicroUsd;
}

/** Returns what a provider must take that makes all items of a batch. */
export async function needsOf(read: Repositories, batchId: string): Promise<Needs> {
  const references = await read.references.mostOfSource(batchId);
  const shapes = await read.items.shapes(batchId);
  const all = shapes.length === 0 ? [PLAIN] : shapes;
  const ratios = all.map(({ ratio }) => ratio ?? PLAIN.ratio);
  return { references, ratios, tiers: all.map(({ tier }) => tier ?? PLAIN.tier) };
}
