import { type LongJson, parseLongJson } from "../../../kernel/json/long-json.ts";

/** An image has at most 64 MiB, 86 MiB as Base64. */
export const MAX_LINE_BYTES = 90 * 1024 * 1024;
const GROWTH_BYTES = 1024 * 1024;

/**
 * Holds one line of a result file, and the images in it, in memory that is used again for the next line. So a file of any
 * size takes no more memory than its largest line.
 */
export class LineMemory {
  /** It grows where it is, so nothing is copied, and no smaller one is left behind. */
  readonly #memory = new ArrayBuffer(0, { maxByteLength: MAX_LINE_BYTES });
  #line = Buffer.from(this.#memory);
  #length = 0;
  #images = Buffer.alloc(0);
  #used = 0;

  get length(): number {
    return this.#length;
  }

  /** Appends a piece of the line, which has at most `MAX_LINE_BYTES` then. */
  add(piece: Buffer): void {
    const length = this.#length + piece.length;
    if (length > this.#line.length) {
      this.#memory.resize(Math.min(Math.ceil(length / GROWTH_BYTES) * GROWTH_BYTES, MAX_LINE_BYTES));
      this.#line = Buffer.from(this.#memory, 0, this.#memory.byteLength);
    }
    piece.copy(this.#line, this.#length);
    this.#length = length;
  }

  get bytes(): Buffer {
    return this.#line.subarray(0, this.#length);
  }

  /** Begins the next line. */
  clear(): void {
    this.#length = 0;
  }

  /** Parses the line as JSON, whose images are valid until the next line is read. Throws `SyntaxError` for anything else. */
  parse(): LongJson {
    this.#used = 0;
    return parseLongJson(this.bytes, (most) => {
      if (this.#used + most > this.#images.length) {
        // Images of this line that lie in the old memory keep it.
        this.#images = Buffer.allocUnsafeSlow(Math.max(most, this.#images.length));
        this.#used = 0;
      }
      this.#used += most;
      return this.#images.subarray(this.#used - most, this.#used);
    });
  }
}
