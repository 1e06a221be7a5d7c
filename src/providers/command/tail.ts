import type { Readable } from "node:stream";

/** The bytes of a stream that are kept. */
const KEPT_BYTES = 64 * 1024;

/** Reads a stream to its end and keeps the last bytes. */
export class Tail {
  #chunks: Buffer[] = [];
  #bytes = 0;
  /** Whether earlier bytes were dropped. */
  isCut = false;

  constructor(stream: Readable) {
    stream.on("data", (chunk: Buffer) => this.#add(chunk));
    // A stream that breaks has ended.
    stream.on("error", () => {});
  }

  #add(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    // Twice the size, so that small chunks are not copied again and again.
    if (this.#bytes > 2 * KEPT_BYTES) this.#trim();
  }

  #trim(): void {
    if (this.#bytes <= KEPT_BYTES) return;
    const kept = Buffer.from(Buffer.concat(this.#chunks).subarray(-KEPT_BYTES));
    this.#chunks = [kept];
    this.#bytes = kept.length;
    this.isCut = true;
  }

  text(): string {
    this.#trim();
    return Buffer.concat(this.#chunks).toString("utf8");
  }
}
