import { Base64Decoder } from "./base64.ts";
import { JsonTextDecoder, TextEnd } from "./json-text.ts";

const QUOTE = 0x22;
/** Shorter texts cost little. */
const LONG_BYTES = 64 * 1024;
const FIRST_BYTES = 4 * 1024;
/** Base64 is decoded in steps of this many characters. */
const STEP = 64 * 1024;
/** A data URL has its Base64 behind a comma, which comes soon. */
const DATA_URL = /^data:[^,]{0,200},/;
/** The characters of Base64 of either alphabet, and of the escapes that some writers put into it. */
const BASE64 = /^[A-Za-z0-9+/_=\s\\-]*$/;
const MARK = "\u0000long text ";

/** Takes the bytes that a long Base64 text stands for, as they come. */
interface ByteSink {
  /** Resolves when more can be taken. The bytes do not change. */
  write(bytes: Buffer): Promise<void>;
}

/**
 * Reads JSON that comes in pieces, and keeps its long Base64 texts out of it: they are decoded while they come, each into a
 * sink of its own. So JSON of any size takes as much memory as the rest of it.
 */
export class LongJsonReader<Sink extends ByteSink> {
  readonly #open: () => Sink;
  readonly #longs: { sink: Sink; base64: Base64Text }[] = [];
  /** The JSON with a mark in place of each long text. One buffer that grows takes far less memory than a list of chunks. */
  #kept = Buffer.allocUnsafeSlow(FIRST_BYTES);
  #keptBytes = 0;
  #isInText = false;
  readonly #textEnd = new TextEnd();
  /** Where in `#kept` the text begins that is being read. Null when it is known to be long, or to be no Base64. */
  #textFrom: number | null = null;
  #long: Base64Text | null = null;

  /** `open` makes the sink of a long text. It may throw. */
  constructor(open: () => Sink) {
    this.#open = open;
  }

  /** Whether a text of the parsed JSON stands for a long one. */
  static isMark(text: string): boolean {
    return text.startsWith(MARK);
  }

  /** The size of the JSON without its long texts, in bytes. */
  get keptBytes(): number {
    return this.#keptBytes;
  }

  /** The JSON so far, without its long texts. While a text is being read, its end is missing. */
  get json(): Buffer {
    return this.#kept.subarray(0, this.#keptBytes);
  }

  /** Rejects with the error of a sink. */
  async add(bytes: Buffer): Promise<void> {
    for (let at = 0; at < bytes.length; ) {
      if (!this.#isInText) {
        const open = bytes.indexOf(QUOTE, at);
        const end = open < 0 ? bytes.length : open + 1;
        this.#keep(bytes.subarray(at, end));
        at = end;
        if (open >= 0) this.#beginText();
        continue;
      }
      const close = this.#textEnd.find(bytes, at);
      const end = close < 0 ? bytes.length : close;
      await this.#addText(bytes.subarray(at, end));
      if (close >= 0) await this.#endText();
      at = end + 1;
    }
  }

  /**
   * Returns what a text of the parsed JSON stands for: the sink of a long Base64 text or of a data URL, else the bytes of the
   * Base64 in it. Null for a long text that has turned out to be no Base64.
   */
  decode(text: string): Sink | Buffer | null {
    const at = text.startsWith("data:") ? text.indexOf(",") + 1 : 0;
    const long = text.startsWith(MARK, at) ? this.#longs[Number(text.slice(at + MARK.length))] : undefined;
    if (long === undefined) return decodeDataUrl(text);
    return long.base64.isValid ? long.sink : null;
  }

  #keep(bytes: Buffer): void {
    const length = this.#keptBytes + bytes.length;
    if (length > this.#kept.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(length, 2 * this.#kept.length));
      this.#kept.copy(larger, 0, 0, this.#keptBytes);
      this.#kept = larger;
    }
    bytes.copy(this.#kept, this.#keptBytes);
    this.#keptBytes = length;
  }

  #beginText(): void {
    this.#isInText = true;
    this.#textFrom = this.#keptBytes;
  }

  async #addText(bytes: Buffer): Promise<void> {
    if (this.#long !== null) return this.#long.add(bytes);
    this.#keep(bytes);
    const from = this.#textFrom;
    if (from === null || this.#keptBytes - from < LONG_BYTES) return;
    this.#textFrom = null;
    const text = Buffer.from(this.json.subarray(from));
    const head = DATA_URL.exec(text.toString("latin1", 0, 256))?.[0].length ?? 0;
    if (!BASE64.test(text.toString("latin1", head, LONG_BYTES))) return;
    const sink = this.#open();
    this.#long = new Base64Text(sink);
    this.#keptBytes = from + head;
    this.#keep(Buffer.from(JSON.stringify(MARK + this.#longs.length).slice(1, -1)));
    this.#longs.push({ sink, base64: this.#long });
    await this.#long.add(text.subarray(head));
  }

  async #endText(): Promise<void> {
    this.#isInText = false;
    this.#keep(Buffer.of(QUOTE));
    const long = this.#long;
    this.#long = null;
    this.#textFrom = null;
    await long?.end();
  }
}

/** Decodes the Base64 of a JSON text that comes in pieces, of either alphabet and with escapes. */
class Base64Text {
  readonly #sink: ByteSink;
  readonly #decoder = new Base64Decoder("lenient");
  readonly #text = new JsonTextDecoder();

  constructor(sink: ByteSink) {
    this.#sink = sink;
  }

  /** False when it is known to be no Base64; the sink then has other bytes than those meant. */
  get isValid(): boolean {
    return this.#decoder.isValid;
  }

  async add(raw: Buffer): Promise<void> {
    for (let at = 0; at < raw.length && this.isValid; at += STEP) {
      const text = this.#decoded(raw.subarray(at, at + STEP), false);
      const memory = Buffer.allocUnsafe(Base64Decoder.bytesFor(text.length));
      await this.#write(memory.subarray(0, this.#decoder.add(text, memory, 0)));
    }
  }

  async end(): Promise<void> {
    this.#decoded(Buffer.alloc(0), true);
    const memory = Buffer.alloc(3);
    await this.#write(memory.subarray(0, this.#decoder.end(memory, 0)));
  }

  async #write(bytes: Buffer): Promise<void> {
    if (bytes.length > 0) await this.#sink.write(bytes);
  }

  /** Line breaks mean nothing in Base64. */
  #decoded(part: Buffer, isEnd: boolean): string {
    const text = this.#text.decode(part, isEnd);
    if (this.#text.problem !== null) this.#decoder.fail();
    const hasBreaks = ["\n", "\r", "\t"].some((character) => text.includes(character));
    return hasBreaks ? text.replaceAll(/[\n\r\t]/g, "") : text;
  }
}

/** Decodes Base64, also that of a data URL (RFC 2397). Other characters are skipped. */
export function decodeDataUrl(text: string): Buffer {
  const comma = text.startsWith("data:") ? text.indexOf(",") : -1;
  return Buffer.from(text.slice(comma + 1), "base64");
}
