import { ImgbatchError } from "../../contract/errors.ts";
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

/** The fields of a batch that has just been made. */
export const NEW_BATCH = {
  status: "queued",
  successCount: 0,
  failCount: 0,
  actualMicroUsd: null,
  endedAtMs: null,
  settledAtMs: null,
  downloadedAtMs: null,
  outputDeletedAtMs: null,
  outputsExpireAtMs: null,
  recordDeletedAtMs: null,
  outputsPurgedAtMs: null,
  error: null,
  waitingSinceMs: null,
  waiting: null,
  inputReadAtMs: null,
} as const satisfies Partial<BatchRecord>;

/**
 * Throws `BATCH_IMAGE_INVALID_ITEMS` for a batch job of a vendor's API: its requests have more than a prompt and
 * references, so the batch API cannot make them again. `param` is the field that names the batch.
 */
export function refuseToRetryJob({ source }: Pick<BatchRecord, "source">, param?: string): void {
  if (source === "batch") return;
  const why =
    "is a batch job of a vendor's API, which is not retried here; send its failed lines as a new job";
  const message = param === undefined ? `The batch ${why}.` : `${param}: the batch ${why}`;
  throw new ImgbatchError("BATCH_IMAGE_INVALID_ITEMS", message, { param });
}

/** Returns the name of a batch that was given none: when it was made. */
export function generatedTaskName(nowMs: number): string {
  return new Date(nowMs).toISOString().slice(0, 19).replace("T", " ");
}
