import { ImgbatchError } from "../../contract/errors.ts";

const RETRY_AFTER_MS = 1000;

/** Counts the downloads that run for each key, so that one caller cannot take all slots. */
export class DownloadSlots {
  readonly #perKey: number;
  readonly #slots = new PerKeyCount();

  constructor(perKey: number) {
    this.#perKey = perKey;
  }

  /** Takes a slot. Returns the function that releases it. Throws `BATCH_IMAGE_DOWNLOAD_LIMITED` when none is free. */
  take(keyId: string): () => void {
    const taken = this.#slots.takenBy(keyId);
    if (taken < this.#perKey) return this.#slots.take(keyId);
    const message = `This key has ${taken} downloads running; ${this.#perKey} are allowed at once.`;
    throw new ImgbatchError("BATCH_IMAGE_DOWNLOAD_LIMITED", message, { retryAfterMs: RETRY_AFTER_MS });
  }
}

/** Counts the work that runs for each key. */
class PerKeyCount {
  readonly #taken = new Map<string, number>();

  takenBy(keyId: string): number {
    return this.#taken.get(keyId) ?? 0;
  }

  /** Counts one more. Returns the function that takes it off again. */
  take(keyId: string): () => void {
    this.#taken.set(keyId, this.takenBy(keyId) + 1);
    let isFree = false;
    return () => {
      if (isFree) return;
      isFree = true;
      const left = this.takenBy(keyId) - 1;
      if (left > 0) this.#taken.set(keyId, left);
      else this.#taken.delete(keyId);
    };
  }
}
