import type { BigIntStats } from "node:fs";

/** A file as the disk showed it: any change shows in one of these. */
export const stateOf = ({ ino, size, mtimeNs, ctimeNs }: BigIntStats) =>
  `${ino} ${size} ${mtimeNs} ${ctimeNs}`;

/** What the pictures in memory may take together. */
const MOST_KEPT_BYTES = 256 * 2 ** 20;

/** The pictures that were read and verified last, until their files change. */
export class KeptImages {
  /** By the name of the file, the one that was asked for last at the end. */
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
