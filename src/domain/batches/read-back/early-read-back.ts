import { aside } from "../../../kernel/yield.ts";
import { isIntact } from "../../downloads/read-intact.ts";
import type { BlobStore } from "../../ports/blob-store.ts";
import type { OutputRecord } from "../../records.ts";

/** Images beyond these are read when their batch ends. */
const MOST_WAITING = 1000;
const MOST_READ = 20_000;

/**
 * Reads images back soon after they were stored, one at a time. When their batch ends, it is enough to see that their
 * files are still the same, which takes a small part of the time. It does so only for a store that knows versions.
 */
export class EarlyReadBack {
  readonly #blobs: BlobStore;
  /** By blob key, the oldest first, with the versions before they are read. */
  readonly #waiting = new Map<string, { output: OutputRecord; version: string }>();
  /** Blob key → the version that was intact, the oldest first. */
  readonly #intact = new Map<string, string>();
  #isReading = false;
  #isClosed = false;

  constructor(blobs: BlobStore) {
    this.#blobs = blobs;
  }

  /** Begins to read images that were just stored. */
  add(outputs: readonly OutputRecord[]): void {
    if (this.#isClosed) return;
    for (const output of outputs) {
      const version = this.#blobs.versionOf(output.blobKey);
      if (version !== null && this.#waiting.size < MOST_WAITING)
        this.#waiting.set(output.blobKey, { output, version });
    }
    if (!this.#isReading) void this.#readAll();
  }

  /** Whether an image was read and was intact, and has not been changed since. Forgets the image. */
  take(blobKey: string): boolean {
    const version = this.#intact.get(blobKey);
    this.#intact.delete(blobKey);
    this.#waiting.delete(blobKey);
    return version !== undefined && this.#blobs.versionOf(blobKey) === version;
  }

  /** Reads no more images. What waits is read when its batch ends, perhaps by another process. */
  close(): void {
    this.#isClosed = true;
    this.#waiting.clear();
  }

  async #readAll(): Promise<void> {
    this.#isReading = true;
    for (const [blobKey, { output, version }] of this.#waiting) {
      await aside();
      // Its batch may have ended meanwhile.
      if (!this.#waiting.has(blobKey)) continue;
      // An image that cannot be read now is read again when its batch ends.
      const isGood = await isIntact(this.#blobs, output).catch(() => false);
      if (this.#waiting.delete(blobKey) && isGood) this.#note(blobKey, version);
    }
    this.#isReading = false;
  }

  #note(blobKey: string, version: string): void {
    this.#intact.set(blobKey, version);
    const [oldest] = this.#intact.keys();
    if (this.#intact.size > MOST_READ && oldest !== undefined) this.#intact.delete(oldest);
  }
}
