import PQueue from "p-queue";
import { readIntact } from "../downloads/piece-stream.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import type { Stores } from "../ports/stores.ts";
import type { OutputRecord } from "../records.ts";

/** The longer side of a thumbnail, in pixels. */
type ThumbnailEdge = 256 | 1024;

interface ThumbnailDeps {
  stores: Stores;
  blobs: BlobStore;
  /** Makes a WebP whose longer side has at most this many pixels; null for bytes that do not decode. */
  shrink(bytes: Buffer, edgePx: number): Promise<Uint8Array | null>;
}

/** Others wait: the workers decode images, too. */
const AT_ONCE = 2;

/** Where the thumbnails of a batch are kept. They are deleted with its images. */
export function thumbnailsPrefix(batchId: string): string {
  return `thumbnails/${batchId}/`;
}

/** Small pictures of stored images: each is made once and kept as long as its image, named by the hash of that. */
export class Thumbnails {
  readonly #deps: ThumbnailDeps;
  readonly #queue = new PQueue({ concurrency: AT_ONCE });

  constructor(deps: ThumbnailDeps) {
    this.#deps = deps;
  }

  /**
   * Returns the WebP; null for an image that does not decode. Rejects with the signal's reason while it waits for its turn, and
   * with `BATCH_IMAGE_RESULT_MISSING` when the image is missing or damaged.
   */
  async get(output: OutputRecord, edgePx: ThumbnailEdge, signal: AbortSignal): Promise<Buffer | null> {
    const key = keyOf(output, edgePx);
    const known = await this.#deps.blobs.read(key);
    if (known) return known;
    return this.#queue.add(
      async () => {
        const made = await this.#deps.blobs.read(key);
        if (made) return made;
        const small = await this.#deps.shrink(await readIntact(this.#deps.blobs, output), edgePx);
        if (small === null) return null;
        const bytes = Buffer.from(small);
        // A full disk is no reason not to show the picture.
        await this.#keep(key, bytes, output).catch(() => {});
        return bytes;
      },
      { signal },
    ) as Promise<Buffer | null>;
  }

  /** Returns the WebP; null when it is not made yet. */
  find(output: OutputRecord, edgePx: ThumbnailEdge): Promise<Buffer | null> {
    return this.#deps.blobs.read(keyOf(output, edgePx));
  }

  async #keep(key: string, bytes: Buffer, { batchId, itemId }: OutputRecord): Promise<void> {
    const { blobs, stores } = this.#deps;
    await blobs.put(key, bytes);
    // Its image may have been deleted meanwhile, and its thumbnails with it.
    const batch = await stores.read.batches.byId(batchId);
    if (batch?.status === "output_deleted") await blobs.deleteAll(thumbnailsPrefix(batchId));
    else if ((await stores.read.outputs.ofItem(itemId)).length === 0) await blobs.delete(key);
  }
}

function keyOf({ batchId, sha256 }: OutputRecord, edgePx: ThumbnailEdge): string {
  return `${thumbnailsPrefix(batchId)}${sha256}-${edgePx}`;
}
