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
  /** The most bytes of thumbnails on the disk. Default: 512 MiB. */
  maxBytes?: number;
}

/** Others wait: the workers decode images, too. */
const AT_ONCE = 2;
const MAX_BYTES = 512 * 1024 * 1024;
const ROOT = "thumbnails/";

/** Where the thumbnails of a batch are kept. They are deleted with its images. */
export function thumbnailsPrefix(batchId: string): string {
  return `${ROOT}${batchId}/`;
}

/**
 * Small pictures of stored images: each is made once and kept on the disk, named by the hash of its image. Beyond a number of
 * bytes the ones that were used longest ago are removed.
 */
export class Thumbnails {
  readonly #deps: ThumbnailDeps;
  readonly #maxBytes: number;
  readonly #queue = new PQueue({ concurrency: AT_ONCE });
  /** The kept ones with their sizes, the one used longest ago first. */
  #kept: Promise<Map<string, number>> | null = null;

  constructor(deps: ThumbnailDeps) {
    this.#deps = deps;
    this.#maxBytes = deps.maxBytes ?? MAX_BYTES;
  }

  /**
   * Returns the WebP; null for an image that does not decode. Rejects with the signal's reason while it waits for its turn, and
   * with `BATCH_IMAGE_RESULT_MISSING` when the image is missing or damaged.
   */
  async get(output: OutputRecord, edgePx: ThumbnailEdge, signal: AbortSignal): Promise<Buffer | null> {
    const key = keyOf(output, edgePx);
    const known = await this.#read(key);
    if (known) return known;
    return this.#queue.add(
      async () => {
        const made = await this.#read(key);
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
    return this.#read(keyOf(output, edgePx));
  }

  async #read(key: string): Promise<Buffer | null> {
    const bytes = await this.#deps.blobs.read(key);
    const kept = await this.#index();
    const sizeBytes = kept.get(key);
    kept.delete(key);
    if (bytes !== null) kept.set(key, sizeBytes ?? bytes.length);
    return bytes;
  }

  async #keep(key: string, bytes: Buffer, { batchId, itemId }: OutputRecord): Promise<void> {
    const { blobs, stores } = this.#deps;
    await blobs.put(key, bytes);
    const kept = await this.#index();
    kept.set(key, bytes.length);
    // Its image may have been deleted meanwhile, and its thumbnails with it.
    const batch = await stores.read.batches.byId(batchId);
    if (batch?.status === "output_deleted") await blobs.deleteAll(thumbnailsPrefix(batchId));
    else if ((await stores.read.outputs.ofItem(itemId)).length === 0) await blobs.delete(key);
    let total = [...kept.values()].reduce((sum, sizeBytes) => sum + sizeBytes, 0);
    for (const [oldest, sizeBytes] of kept) {
      if (total <= this.#maxBytes) return;
      kept.delete(oldest);
      await blobs.delete(oldest);
      total -= sizeBytes;
    }
  }

  /** Those of an earlier process count as used in the order of their names. */
  #index(): Promise<Map<string, number>> {
    this.#kept ??= this.#readIndex().catch((error) => {
      this.#kept = null;
      throw error;
    });
    return this.#kept;
  }

  async #readIndex(): Promise<Map<string, number>> {
    const { blobs } = this.#deps;
    const found = new Map<string, number>();
    for (const { key, sizeBytes } of await blobs.list(ROOT)) found.set(key, sizeBytes);
    return found;
  }
}

function keyOf({ batchId, sha256 }: OutputRecord, edgePx: ThumbnailEdge): string {
  return `${thumbnailsPrefix(batchId)}${sha256}-${edgePx}`;
}
