const KIB = 1024;
const MIB = 1024 * KIB;
/** Sizes of the pieces that a small body is kept in. */
const PIECE_BYTES = [4 * KIB, 64 * KIB, MIB] as const;

/** Copies chunks of any size into pieces. Keeping a chunk would hold far more memory than its bytes. */
export class ChunkBuffer {
  size = 0;
  readonly #full: Uint8Array[] = [];
  #last = new Uint8Array(0);
  #used = 0;

  add(chunk: Uint8Array): void {
    this.size += chunk.length;
    for (let rest = chunk; rest.length > 0; ) {
      if (this.#used === this.#last.length) this.#grow();
      const part = rest.subarray(0, this.#last.length - this.#used);
      this.#last.set(part, this.#used);
      this.#used += part.length;
      rest = rest.subarray(part.length);
    }
  }

  /** Returns all bytes and forgets them. */
  take(): Uint8Array[] {
    const all = [...this.#full.splice(0), this.#last.subarray(0, this.#used)];
    this.#last = new Uint8Array(0);
    this.#used = 0;
    return all;
  }

  #grow(): void {
    if (this.#used > 0) this.#full.push(this.#last);
    this.#last = new Uint8Array(PIECE_BYTES[this.#full.length] ?? MIB);
    this.#used = 0;
  }
}
