import type { BigIntStats } from "node:fs";

/** Returns a text that changes whenever the file changes. */
export const stateOf = ({ ino, size, mtimeNs, ctimeNs }: BigIntStats) =>
  `${ino} ${size} ${mtimeNs} ${ctimeNs}`;

/** How many bytes of pictures are kept in memory at most. */
const MOST_KEPT_BYTES = 256 * 2 ** 20;

/** The pictures that were read and verified last, until their files change. */
export class KeptImages {
  /** By the names of their files. The picture that was asked for last is at the end. */
  readonly #kept = new Map<string, { bytes: Buffer; state: string; sha256: string }>();
  #bytes = 0;

  find(name: string, state: string, sha256: string): Buffer | null {
    const kept = this.#kept.get(name);
    if (kept === undefined) return null;
    this.#kept.delete(name);
    if (kept.state === state && kept.sha256 === sha256) {
      this.#kept.set(name, kept);
      return kept.bytes;
    }
    this.#bytes -= kept.bytes.length;
    return null;
  }

  keep(name: string, kept: { bytes: Buffer; state: string; sha256: string }): void {
    this.#bytes += kept.bytes.length - (this.#kept.get(name)?.bytes.length ?? 0);
    this.#kept.delete(name);
    this.#kept.set(name, kept);
    for (const [oldest, { bytes }] of this.#kept) {
      if (this.#bytes <= MOST_KEPT_BYTES) return;
      this.#kept.delete(oldest);
      this.#bytes -= bytes.length;
    }
  }
}
