import { ImgbatchError } from "../contract/errors.ts";

const RETRY_AFTER_MS = 1000;

/**
 * Counts the downloads that run for each key, so that one caller cannot take all.
 * Rule: LIMIT-6.
 */
export class DownloadSlots {
  readonly #perKey: number;
  readonly #taken = new Map<string, number>();

  constructor(perKey: number) {
    this.#perKey = perKey;
  }

  /** Takes a place; answers the function that gives it back. Throws `BATCH_IMAGE_DOWNLOAD_LIMITED` when none is free. */
  take(keyId: string): () => void {
    const taken = this.#taken.get(keyId) ?? 0;
    if (taken >= this.#perKey) {
      const message = `This key has ${taken} downloads running; ${this.#perKey} are allowed at once.`;
      throw new ImgbatchError("BATCH_IMAGE_DOWNLOAD_LIMITED", message, { retryAfterMs: RETRY_AFTER_MS });
    }
    this.#taken.set(keyId, taken + 1);
    let isFree = false;
    return () => {
      if (isFree) return;
      isFree = true;
      const left = (this.#taken.get(keyId) ?? 1) - 1;
      if (left > 0) this.#taken.set(keyId, left);
      else this.#taken.delete(keyId);
    };
  }
}
