import { isAscii, isUtf8 } from "node:buffer";
import { randomBytes } from "node:crypto";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import {
  type BodyFormat,
  invalidJson,
  JsonValue,
  SHORT_IMAGE_BYTES,
  type StringProblem,
} from "./json-value.ts";

const [QUOTE, BACKSLASH, COMMA, COLON] = [0x22, 0x5c, 0x2c, 0x3a];
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d];
/** Bytes between values. All others belong to a text, or to a word such as `true` or `-1.5`. */
const [BLANK, MARK] = [1, 2];
const KINDS = new Uint8Array(256);
for (const byte of [0x20, 0x09, 0x0a, 0x0d]) KINDS[byte] = BLANK;
for (const byte of [QUOTE, COMMA, COLON, OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT])
  KINDS[byte] = MARK;

const { jsonNameBytes, jsonTextBytes } = FIXED_LIMITS;
/** Longer than any number that a double holds. */
const MOST_WORD_CHARS = 1024;
/** A character of a name can be written as an escape of six bytes. */
const MOST_NAME_BYTES = 6 * jsonNameBytes;

const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);
const LETTER_U = 0x75;
const LONGEST_ESCAPE = 6;

const UTF_8 = { fatal: true, ignoreBOM: true };

/**
 * Decodes the bytes between the quotes of a JSON string as they arrive, and finds the problems that a JSON parser would
 * find.
 */
export class StringDecoder {
  readonly #utf8 = new TextDecoder("utf-8", UTF_8);
  /** The start of an escape whose end has not arrived. */
  #begun: Buffer = Buffer.alloc(0);
  /** Whether all bytes so far are ASCII. */
  #isAscii = true;
  problem: StringProblem | null = null;

  /** Returns the characters of the next part, with their escapes resolved; nothing after a problem. */
  decode(part: Buffer, isEnd: boolean): string {
    const bytes = this.#begun.length === 0 ? part : Buffer.concat([this.#begun, part]);
    const cut = isEnd ? bytes.length : wholeEscapes(bytes);
    // A copy: the caller reuses the memory of the part.
    this.#begun = Buffer.from(bytes.subarray(cut));
    if (this.problem === "utf-8") return "";
    const whole = bytes.subarray(0, cut);
    this.#isAscii &&= isAscii(whole);
    let raw: string;
    try {
      raw = this.#isAscii ? whole.toString("latin1") : this.#utf8.decode(whole, { stream: !isEnd });
    } catch {
      this.problem = "utf-8";
      return "";
    }
    if (this.problem !== null) return "";
    try {
      return JSON.parse(`"${raw}"`);
    } catch {
      this.problem = "json";
      return "";
    }
  }
}

/** A long string whose beginning is kept. */
class LongString {
  readonly #decoder = new StringDecoder();
  readonly #mostChars: number;
  #text = "";

  constructor(mostChars: number) {
    this.#mostChars = mostChars;
  }

  get problem(): StringProblem | null {
    return this.#decoder.problem;
  }

  /** As much of the string as is kept. It does not end in half of a character. */
  get text(): string {
    return this.#text.length < this.#mostChars ? this.#text : this.#text.replace(/[\ud800-\udbff]$/, "");
  }

  /** Takes the next part of the bytes between the quotes. */
  add(part: Buffer, isEnd: boolean): void {
    const text = this.#decoder.decode(part, isEnd);
    this.#text += text.slice(0, Math.max(0, this.#mostChars - this.#text.length));
  }
}

const WHOLE_UTF_8 = new TextDecoder("utf-8", UTF_8);

/** Decodes a string of which all bytes are there. */
function decodeString(bytes: Buffer): { text: string; problem: StringProblem | null } {
  let problem: StringProblem = "utf-8";
  try {
    const raw = isAscii(bytes) ? bytes.toString("latin1") : WHOLE_UTF_8.decode(bytes);
    problem = "json";
    return { text: /\\|[^ -\uffff]/.test(raw) ? JSON.parse(`"${raw}"`) : raw, problem: null };
  } catch {
    return { text: "", problem };
  }
}

/** The number of bytes before an escape that is not complete. */
function wholeEscapes(bytes: Buffer): number {
  const last = bytes.lastIndexOf(BACKSLASH);
  if (last < bytes.length - LONGEST_ESCAPE) return bytes.length;
  let first = last;
  while (first > 0 && bytes[first - 1] === BACKSLASH) first--;
  // In a row of backslashes every second one is escaped.
  if ((last - first) % 2 === 1) return bytes.length;
  const length = bytes[last + 1] === LETTER_U ? LONGEST_ESCAPE : 2;
  return last + length > bytes.length ? last : bytes.length;
}

/** Bytes between the quotes of a long image. `name` stands for the image in the value. */
export interface ImagePart {
  name: string;
  bytes: Buffer;
  isEnd: boolean;
}

/**
 * Reads JSON (RFC 8259) as it arrives, and keeps what its format names. Everything is checked, as `JSON.parse` would,
 * also what is not kept. What is kept is bounded, whatever arrives. The first problem ends the reading.
 */
export class JsonReader {
  readonly #value: JsonValue;
  /** Begins the names of long images, which no caller can guess; null when they stay in the value. */
  readonly #imagePrefix: string | null;
  #images = 0;
  #failure: Error | null = null;
  #isBegun = false;
  #expected: "value" | "first value" | "name" | "first name" | "colon" | "end" = "value";
  /** The word that is being read. */
  #word = "";
  /** What is being read between quotes. */
  #text: "none" | "name" | "value" | "image" = "none";
  #textBytes = 0;
  #isEscaped = false;
  /** The bytes of a text so far, while it is short. */
  #held: Buffer[] = [];
  /** The beginning of a long text. */
  #long: LongString | null = null;

  constructor(format: BodyFormat, { takesImages }: { takesImages: boolean }) {
    this.#value = new JsonValue(format);
    this.#imagePrefix = takesImages ? randomBytes(16).toString("hex") : null;
  }

  /** Bytes that the value takes by now. */
  get keptBytes(): number {
    return this.#value.keptBytes;
  }

  /** Reads the next bytes. Yields the parts of long images; their bytes are valid until the next call only. */
  *read(chunk: Buffer): Generator<ImagePart> {
    let at = 0;
    if (!this.#isBegun) {
      this.#isBegun = true;
      if (chunk.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK)) at = BYTE_ORDER_MARK.length;
    }
    while (at < chunk.length && this.#failure === null) {
      if (this.#text !== "image") {
        at = this.#readValues(chunk, at);
        continue;
      }
      const name = `${this.#imagePrefix}.${this.#images}`;
      for (const bytes of this.#held) yield { name, bytes, isEnd: false };
      this.#held = [];
      const quote = this.#endOfText(chunk, at);
      const end = quote < 0 ? chunk.length : quote;
      yield { name, bytes: chunk.subarray(at, end), isEnd: quote >= 0 };
      at = end;
      // The image may have been refused meanwhile.
      if (quote < 0 || this.#failure !== null) continue;
      at++;
      this.#images++;
      this.#text = "none";
      try {
        this.#take(name);
      } catch (error) {
        this.#fail(error as Error);
      }
    }
  }

  /** Returns the value after the last bytes. Throws `INVALID_JSON`, or the error about the field that exceeds a bound. */
  end(): unknown {
    try {
      if (this.#failure === null) this.#endAll();
    } catch (error) {
      this.#fail(error as Error);
    }
    if (this.#failure !== null) throw this.#failure;
    return this.#value.root;
  }

  /** Takes note of a problem in an image. */
  refuse(problem: StringProblem): void {
    if (this.#failure === null) this.#fail(invalidJson(problem));
  }

  #fail(error: Error): void {
    this.#failure = error;
    this.#value.root = undefined;
    this.#long = null;
    this.#held = [];
  }

  #endAll(): void {
    if (this.#text === "image") throw invalidJson("json");
    if (this.#text !== "none") {
      // The text has no end; bytes that are not UTF-8 are the greater problem.
      this.#endText(Buffer.alloc(0));
      throw invalidJson("json");
    }
    if (this.#word !== "") this.#endWord();
    if (this.#value.within !== null || this.#expected !== "end") throw invalidJson("json");
  }

  /** Returns the index of the first byte that was not read: the end of the chunk, or within a long image. */
  #readValues(chunk: Buffer, from: number): number {
    let at = from;
    try {
      while (at < chunk.length) {
        if (this.#text !== "none") {
          at = this.#readText(chunk, at);
          if (this.#isImage()) return at;
          continue;
        }
        const byte = chunk[at] as number;
        const kind = KINDS[byte];
        if (kind === 0) {
          at = this.#readWord(chunk, at);
          continue;
        }
        if (this.#word !== "") this.#endWord();
        if (kind === MARK) this.#takeMark(byte);
        at++;
      }
    } catch (error) {
      this.#fail(error as Error);
    }
    return at;
  }

  #isImage(): boolean {
    return this.#text === "image";
  }

  #takeMark(byte: number): void {
    const expected = this.#expected;
    const takesValue = expected === "value" || expected === "first value";
    const takesName = expected === "name" || expected === "first name";
    const { within } = this.#value;
    if (byte === QUOTE && (takesValue || takesName)) {
      this.#text = takesName ? "name" : "value";
      this.#textBytes = 0;
    } else if ((byte === OPEN_LIST || byte === OPEN_OBJECT) && takesValue) {
      this.#value.begin(byte === OPEN_LIST);
      this.#expected = byte === OPEN_LIST ? "first value" : "first name";
    } else if (byte === COLON && expected === "colon") this.#expected = "value";
    else if (byte === COMMA && expected === "end" && within !== null) {
      this.#value.next();
      this.#expected = within === "list" ? "value" : "name";
    } else if (
      (byte === CLOSE_LIST && within === "list" && (expected === "end" || expected === "first value")) ||
      (byte === CLOSE_OBJECT && within === "object" && (expected === "end" || expected === "first name"))
    ) {
      this.#value.close();
      this.#expected = "end";
    } else throw invalidJson("json");
  }

  #take(value: unknown): void {
    this.#expected = "end";
    this.#value.take(value);
  }

  /** A number, a truth value or null, or what is none of them. */
  #readWord(chunk: Buffer, from: number): number {
    let end = from;
    while (end < chunk.length && KINDS[chunk[end] as number] === 0) end++;
    if (this.#word.length + end - from > MOST_WORD_CHARS) {
      throw this.#value.error(`a number has at most ${MOST_WORD_CHARS} characters`);
    }
    this.#word += chunk.toString("latin1", from, end);
    return end;
  }

  #endWord(): void {
    const word = this.#word;
    this.#word = "";
    const takesValue = this.#expected === "value" || this.#expected === "first value";
    let value: unknown;
    try {
      value = JSON.parse(word);
    } catch {
      throw invalidJson(isUtf8(Buffer.from(word, "latin1")) ? "json" : "utf-8");
    }
    if (!takesValue) throw invalidJson("json");
    this.#take(value);
  }

  /** Reads a name or a text, as far as it is in the chunk. */
  #readText(chunk: Buffer, from: number): number {
    const wasEscaped = this.#isEscaped;
    const quote = this.#endOfText(chunk, from);
    const end = quote < 0 ? chunk.length : quote;
    const size = this.#textBytes + end - from;
    if (this.#text === "name" && size > MOST_NAME_BYTES) {
      throw this.#value.longName(String(Buffer.concat([...this.#held, chunk.subarray(from, end)])));
    }
    if (this.#long === null && size >= SHORT_IMAGE_BYTES) {
      if (this.#value.shape === "image" && this.#imagePrefix !== null) {
        this.#isEscaped = wasEscaped;
        this.#text = "image";
        return from;
      }
      this.#long = new LongString(this.#value.mostChars);
      for (const bytes of this.#held) this.#long.add(bytes, false);
      this.#held = [];
    }
    if (size > jsonTextBytes && this.#value.shape === "any") throw this.#value.longText();
    this.#textBytes = size;
    const bytes = chunk.subarray(from, end);
    if (quote >= 0) this.#endText(bytes);
    else if (this.#long !== null) this.#long.add(bytes, false);
    // A copy: the chunk may be a small part of a large piece of memory.
    else this.#held.push(Buffer.from(bytes));
    return quote < 0 ? end : end + 1;
  }

  #endText(last: Buffer): void {
    const long = this.#long;
    this.#long = null;
    long?.add(last, true);
    const decoded = long ?? decodeString(this.#whole(last));
    if (decoded.problem !== null) throw invalidJson(decoded.problem);
    this.#takeText(decoded.text);
  }

  #takeText(text: string): void {
    const isName = this.#text === "name";
    this.#text = "none";
    if (isName) {
      this.#value.name(text);
      this.#expected = "colon";
    } else this.#take(text);
  }

  #whole(last: Buffer): Buffer {
    if (this.#held.length === 0) return last;
    const whole = Buffer.concat([...this.#held, last]);
    this.#held = [];
    return whole;
  }

  /** The index of the quote that ends a text; negative when it is not in this chunk. */
  #endOfText(chunk: Buffer, from: number): number {
    const first = this.#isEscaped ? from + 1 : from;
    for (let at = first; ; ) {
      const quote = chunk.indexOf(QUOTE, at);
      const end = quote < 0 ? chunk.length : quote;
      let before = end;
      while (before > first && chunk[before - 1] === BACKSLASH) before--;
      // In a row of backslashes every second one is escaped.
      const isEscaped = (end - before) % 2 === 1;
      this.#isEscaped = quote < 0 && isEscaped;
      if (quote < 0 || !isEscaped) return quote;
      at = quote + 1;
    }
  }
}
