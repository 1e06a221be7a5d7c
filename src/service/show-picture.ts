import type { Fact } from "../dashboard/events.ts";
import type { Intent } from "../dashboard/source.ts";
import { readIntact } from "../domain/downloads/piece-stream.ts";
import type { BlobStore } from "../domain/ports/blob-store.ts";
import type { Stores } from "../domain/ports/stores.ts";
import type { toPixels } from "../imaging/thumbnail.ts";
import { formatSize } from "../kernel/text.ts";

interface PictureDeps {
  stores: Stores;
  blobs: BlobStore;
  toPixels: (bytes: Buffer, box: Parameters<typeof toPixels>[1]) => ReturnType<typeof toPixels>;
}

/** Reports the first image of an item in the size that the terminal has for it. Throws when there is none. */
export async function showPicture(
  { stores, blobs, toPixels }: PictureDeps,
  intent: Extract<Intent, { type: "show-picture" }>,
  tell: (fact: Fact) => void,
): Promise<void> {
  const { batchId, customId, box } = intent;
  const item = await stores.read.items.byCustomId(batchId, customId);
  const [output] = item === null ? [] : await stores.read.outputs.ofItem(item.id);
  if (output === undefined) throw new Error(`${customId} has no image any more.`);
  const bytes = await readIntact(blobs, output);
  const pixels = await toPixels(bytes, box);
  const { widthPx, heightPx, mimeType, sizeBytes } = output;
  const caption = `${widthPx}×${heightPx} ${mimeType} ${formatSize(sizeBytes)}`;
  tell({ type: "picture", picture: { batchId, customId, ...pixels, caption } });
}
