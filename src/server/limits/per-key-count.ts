/** Counts the work that runs for each key. */
export class PerKeyCount {
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
