import { decodeDataUrl } from "../image-address.ts";

/** An image has at most 64 MiB, 86 MiB as Base64. */
export const MAX_LINE_BYTES = 90 * 1024 * 1024;
const GROWTH_BYTES = 1024 * 1024;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** Shorter texts cost little. */
const LONG_BYTES = 64 * 1024;
/** Base64 is decoded in steps of so many characters, a multiple of 4. */
const STEP = 64 * 1024;
/** A data URL has its Base64 behind a comma, which comes soon. */
const DATA_URL = /^data:[^,]{0,200},/;
const MARK = "\u0000long text ";

/** JSON without its long texts, and a way to read these as Base64. */
export interface LongJson {
  value: unknown;
  /** Decodes the Base64 of a text in `value`, or of a data URL there. The bytes are valid until the next line is read. */
  decode(text: string): Buffer;
}

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

  /** Parses the line as JSON. Throws `SyntaxError` for anything else. */
  parse(): LongJson {
    const { bytes } = this;
    const longs: { from: number; to: number }[] = [];
    const pieces: string[] = [];
    let copied = 0;
    for (let open = bytes.indexOf(QUOTE); open >= 0; ) {
      const close = endOfText(bytes, open + 1);
      if (close < 0) break;
      if (close - open > LONG_BYTES && !bytes.subarray(open, close).includes(BACKSLASH)) {
        pieces.push(
          bytes.toString("utf8", copied, open + 1),
          JSON.stringify(MARK + longs.length).slice(1, -1),
        );
        longs.push({ from: open + 1, to: close });
        copied = close;
      }
      open = bytes.indexOf(QUOTE, close + 1);
    }
    pieces.push(bytes.toString("utf8", copied));
    this.#used = 0;
    return {
      value: JSON.parse(pieces.join("")),
      decode: (text) => {
        const long = text.startsWith(MARK) ? longs[Number(text.slice(MARK.length))] : undefined;
        return long ? this.#decode(long.from, long.to) : decodeDataUrl(text);
      },
    };
  }

  #decode(start: number, to: number): Buffer {
    const opening = DATA_URL.exec(this.#line.toString("latin1", start, Math.min(start + 256, to)));
    const from = start + (opening?.[0].length ?? 0);
    const most = Math.ceil(((to - from) * 3) / 4);
    if (this.#used + most > this.#images.length) {
      // Images of this line that lie in the old memory keep it.
      this.#images = Buffer.allocUnsafeSlow(Math.max(most, this.#images.length));
      this.#used = 0;
    }
    const begin = this.#used;
    for (let at = from; at < to; at += STEP) {
      const text = this.#line.toString("latin1", at, Math.min(at + STEP, to));
      this.#used += this.#images.write(text, this.#used, "base64");
    }
    return this.#images.subarray(begin, this.#used);
  }
}

/** The index of the quote that ends a text; -1 when nothing does. */
function endOfText(bytes: Buffer, from: number): number {
  for (let at = bytes.indexOf(QUOTE, from); at >= 0; at = bytes.indexOf(QUOTE, at + 1)) {
    let before = at;
    while (before > from && bytes[before - 1] === BACKSLASH) before--;
    if ((at - before) % 2 === 0) return at;
  }
  return -1;
}
