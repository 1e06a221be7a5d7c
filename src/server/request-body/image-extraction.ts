import { isAscii, isUtf8 } from "node:buffer";
import { createHash, randomBytes } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import {
  imageInDraft,
  type SentImage,
  type SentText,
  type SentTexts,
} from "../../domain/images/sent-image.ts";
import type { BlobDraft, BlobStore } from "../../domain/ports/blob-store.ts";
import { Base64Decoder, type Base64Rules, dataUrlHead } from "../../kernel/base64.ts";
import type { BodyReservation } from "./body-budgets.ts";
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
class StringDecoder {
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
interface ImagePart {
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

const KIB = 1024;
/** A body up to this size is read at once, and its images stay in memory. */
const WHOLE_BYTES = 1024 * KIB;
const STEP_BYTES = 64 * KIB;
const STEPS_BEFORE_YIELD = 4;
const MEMORY_BYTES = 256 * KIB;

/** More than any type of an image needs. */
const LONGEST_HEAD = 200;

interface Base64StringOptions {
  base64: Base64Rules;
  /** Whether the Base64 comes behind the head of a data URL. */
  isDataUrl: boolean;
  /** A string that decodes to more bytes is not kept. */
  maxBytes: number;
  /** The draft that takes the bytes. */
  draft: BlobDraft;
  /** Gathers bytes before they are written; much larger than a part. Serves one string at a time. */
  memory: Buffer;
  /** Waits until this many more bytes may be on the disk. */
  reserveDisk(bytes: number): Promise<void>;
}

/**
 * Decodes and hashes one long Base64 string while it arrives. When it proves to be invalid or too large, its bytes are
 * discarded and the rest is only scanned for its end.
 */
class Base64String {
  readonly #options: Base64StringOptions;
  readonly #text = new StringDecoder();
  readonly #decoder: Base64Decoder;
  readonly #hash = createHash("sha256");
  /** The head of a data URL, as far as it has arrived; null behind it. */
  #head: string | null;
  #chars = 0;
  #used = 0;
  #sizeBytes = 0;
  #isDropped = false;

  constructor(options: Base64StringOptions) {
    this.#options = options;
    this.#decoder = new Base64Decoder(options.base64);
    this.#head = options.isDataUrl ? "" : null;
  }

  get problem(): StringProblem | null {
    return this.#text.problem;
  }

  /** Takes the next part of the bytes between the quotes. */
  async add(part: Buffer, isEnd: boolean): Promise<void> {
    const { memory, maxBytes } = this.#options;
    // The decoder and the escapes hold back some bytes of earlier parts.
    const needed = Base64Decoder.bytesFor(part.length) + 16;
    if (memory.length - this.#used < needed) await this.#write();
    const length = this.#decode(part, isEnd);
    this.#sizeBytes += length;
    if (!this.#decoder.isValid || this.#sizeBytes > maxBytes) return this.#drop();
    this.#hash.update(memory.subarray(this.#used, this.#used + length));
    this.#used += length;
  }

  /** Returns the outcome after the last part. */
  async end(): Promise<SentText> {
    const chars = this.#chars;
    if (this.#head !== null) this.#decoder.fail();
    if (!this.#decoder.isValid) return { chars, content: "no Base64" };
    if (this.#isDropped) return { chars, content: "too large" };
    await this.#write();
    await this.#options.draft.finish();
    const facts = { sizeBytes: this.#sizeBytes, sha256: this.#hash.digest("hex") };
    return { chars, content: imageInDraft(this.#options.draft, facts) };
  }

  #decode(part: Buffer, isEnd: boolean): number {
    const { memory } = this.#options;
    const text = this.#text.decode(part, isEnd);
    this.#chars += text.length;
    if (this.problem !== null) this.#decoder.fail();
    const length = this.#decoder.add(this.#behindHead(text), memory, this.#used);
    return isEnd ? length + this.#decoder.end(memory, this.#used + length) : length;
  }

  #behindHead(text: string): string {
    if (this.#head === null) return text;
    const begun = this.#head + text;
    const length = dataUrlHead(begun);
    if (length === null) {
      this.#head = begun;
      if (begun.length > LONGEST_HEAD) this.#decoder.fail();
      return "";
    }
    this.#head = null;
    return begun.slice(length);
  }

  async #write(): Promise<void> {
    if (this.#used === 0) return;
    const bytes = this.#options.memory.subarray(0, this.#used);
    await this.#options.reserveDisk(bytes.length);
    await this.#options.draft.write(bytes);
    this.#used = 0;
  }

  async #drop(): Promise<void> {
    this.#used = 0;
    if (this.#isDropped) return;
    this.#isDropped = true;
    await this.#options.draft.discard();
  }
}

/** The rules for the images of a request, which are Base64. */
export interface ImageTexts {
  base64: Base64Rules;
  /** Whether they are data URLs (RFC 2397), with their Base64 behind a head. Default: false. */
  areDataUrls?: boolean;
  maxBytes: number;
  blobs: Pick<BlobStore, "draft">;
}

export interface TakenBody {
  value: unknown;
  /** The images that were taken out of a large body, by the name that replaces each in `value`. */
  sent: SentTexts;
}

/**
 * Takes a body as it arrives. The images of a large body are decoded, hashed and written to the disk meanwhile, so memory
 * holds only a small part of them. Equal images are kept once.
 */
export class ImageExtraction {
  readonly #format: BodyFormat;
  readonly #texts: ImageTexts | null;
  readonly #reservation: BodyReservation | null;
  readonly #wholeBytes: number;
  readonly #sent = new Map<string, SentText>();
  readonly #drafts: BlobDraft[] = [];
  readonly #images = new Map<string, SentImage>();
  /** The body, while it is small: a copy, because a chunk can be a small part of a large piece of memory. */
  #whole = Buffer.alloc(0);
  #size = 0;
  #reader: JsonReader | null = null;
  #memory: Buffer = Buffer.alloc(0);
  #counted = 0;
  #text: Base64String | null = null;
  #steps = 0;
  #working: Promise<void> = Promise.resolve();
  #isOver = false;

  /**
   * `texts` is null for bodies whose images stay where they are, and `reservation` for those whose number is limited.
   * `wholeBytes` is for tests.
   */
  constructor(
    format: BodyFormat,
    texts: ImageTexts | null,
    reservation: BodyReservation | null,
    wholeBytes = WHOLE_BYTES,
  ) {
    this.#format = format;
    this.#texts = texts;
    this.#reservation = reservation;
    this.#wholeBytes = wholeBytes;
  }

  /** Returns null when the next chunk may follow now, else a promise of that moment. One call at a time. */
  add(chunk: Buffer): Promise<void> | null {
    if (this.#reader !== null) return this.#work(() => this.#step(chunk));
    const size = this.#size + chunk.length;
    if (size > this.#whole.length) {
      const begun = this.#whole.subarray(0, this.#size);
      this.#whole = Buffer.alloc(Math.max(size, 2 * this.#size));
      this.#whole.set(begun);
    }
    this.#whole.set(chunk, this.#size);
    this.#size = size;
    if (size > this.#wholeBytes) return this.#work(() => this.#begin());
    return this.#count(this.#whole.length);
  }

  /**
   * Returns the body after its last chunk. Throws `INVALID_JSON`, or the error about the field that exceeds a bound. Such a
   * body is read to its end before, because its sender reads no response earlier.
   */
  async end(): Promise<TakenBody> {
    let reader = this.#reader;
    if (reader === null) {
      reader = new JsonReader(this.#format, { takesImages: false });
      for (const _ of reader.read(this.#takeWhole()));
    }
    if (this.#text !== null) {
      await this.#text.add(Buffer.alloc(0), true);
      reader.refuse(this.#text.problem ?? "json");
    }
    this.#reservation?.finish();
    this.#memory = Buffer.alloc(0);
    return { value: reader.end(), sent: this.#sent };
  }

  /** Stops the work and removes the drafts that did not become blobs. */
  async discard(): Promise<void> {
    this.#isOver = true;
    this.#reservation?.leave();
    await this.#working.catch(() => {});
    // The next start of the service removes drafts that cannot be removed now.
    await Promise.allSettled(this.#drafts.map((draft) => draft.discard()));
  }

  #work(work: () => Promise<void>): Promise<void> {
    this.#working = work();
    return this.#working;
  }

  async #begin(): Promise<void> {
    this.#reader = new JsonReader(this.#format, { takesImages: this.#texts !== null });
    this.#memory = Buffer.allocUnsafeSlow(MEMORY_BYTES);
    await this.#step(this.#takeWhole());
  }

  #takeWhole(): Buffer {
    const whole = this.#whole.subarray(0, this.#size);
    this.#whole = Buffer.alloc(0);
    return whole;
  }

  async #step(bytes: Buffer): Promise<void> {
    const reader = this.#reader;
    for (let at = 0; at < bytes.length && reader !== null; at += STEP_BYTES) {
      for (const part of reader.read(bytes.subarray(at, at + STEP_BYTES))) {
        await this.#take(part, reader);
        if (this.#isOver) throw new Error("the request ended early");
      }
      await this.#count(reader.keptBytes);
      if (++this.#steps % STEPS_BEFORE_YIELD === 0) await setImmediate();
    }
  }

  /** Reserves memory for the bytes that are kept now. */
  #count(bytes: number): Promise<void> | null {
    const more = bytes - this.#counted;
    if (more <= 0) return null;
    this.#counted += more;
    return this.#reservation?.memoryFor(more) ?? null;
  }

  async #take({ name, bytes, isEnd }: ImagePart, reader: JsonReader): Promise<void> {
    this.#text ??= this.#open();
    const text = this.#text;
    await text.add(bytes, isEnd);
    if (!isEnd) return;
    this.#text = null;
    if (text.problem !== null) reader.refuse(text.problem);
    this.#sent.set(name, await this.#once(await text.end()));
  }

  #open(): Base64String {
    if (this.#texts === null) throw new Error("there are no images to take out");
    const { base64, areDataUrls = false, maxBytes, blobs } = this.#texts;
    const draft = blobs.draft();
    this.#drafts.push(draft);
    const reserveDisk = async (bytes: number) => {
      await this.#reservation?.diskFor(bytes);
    };
    return new Base64String({
      base64,
      isDataUrl: areDataUrls,
      maxBytes,
      draft,
      memory: this.#memory,
      reserveDisk,
    });
  }

  /** Replaces an image by an equal one that came before. */
  async #once(sent: SentText): Promise<SentText> {
    if (typeof sent.content === "string") return sent;
    const { sha256 } = sent.content;
    const known = this.#images.get(sha256);
    if (known) await this.#drafts.pop()?.discard();
    else this.#images.set(sha256, sent.content);
    return { chars: sent.chars, content: known ?? sent.content };
  }
}
