import { isAscii } from "node:buffer";
import { createHash } from "node:crypto";
import { imageInDraft, type SentText } from "../../domain/images/sent-image.ts";
import type { BlobDraft } from "../../domain/ports/blob-store.ts";
import { Base64Decoder, type Base64Rules, dataUrlHead } from "../../kernel/base64.ts";

const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
const LONGEST_ESCAPE = 6;

/** Why a string is refused. */
export type StringProblem = "utf-8" | "json";

/**
 * Decodes the bytes between the quotes of a JSON string as they arrive, and finds the problems that a JSON parser would
 * find.
 */
class StringDecoder {
  readonly #utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  /** The start of an escape whose end has not arrived. */
  #begun: Buffer = Buffer.alloc(0);
  #problem: StringProblem | null = null;
  /** Whether all bytes so far are ASCII. */
  #isAscii = true;

  get problem(): StringProblem | null {
    return this.#problem;
  }

  /** Returns the characters of the part with their escapes; null when they are not UTF-8. */
  decode(part: Buffer, isEnd: boolean): string | null {
    const bytes = this.#begun.length === 0 ? part : Buffer.concat([this.#begun, part]);
    const cut = isEnd ? bytes.length : wholeEscapes(bytes);
    // A copy: the caller reuses the memory of the part.
    this.#begun = Buffer.from(bytes.subarray(cut));
    const whole = bytes.subarray(0, cut);
    this.#isAscii &&= isAscii(whole);
    if (this.#isAscii) return whole.toString("latin1");
    if (this.#problem === "utf-8") return null;
    try {
      return this.#utf8.decode(whole, { stream: !isEnd });
    } catch {
      this.#problem = "utf-8";
      return null;
    }
  }

  /** Returns the characters with escapes resolved; null when JSON forbids them, or after an earlier problem. */
  unescape(raw: string): string | null {
    if (this.#problem !== null) return null;
    try {
      return JSON.parse(`"${raw}"`);
    } catch {
      this.#problem = "json";
      return null;
    }
  }
}

/** A long string whose beginning is kept. */
export class LongString {
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
    const raw = this.#decoder.decode(part, isEnd);
    const text = raw === null ? "" : (this.#decoder.unescape(raw) ?? "");
    this.#text += text.slice(0, Math.max(0, this.#mostChars - this.#text.length));
  }
}

const UTF_8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Decodes a string of which all bytes are there. */
export function decodeString(bytes: Buffer): { text: string; problem: StringProblem | null } {
  let problem: StringProblem = "utf-8";
  try {
    const raw = isAscii(bytes) ? bytes.toString("latin1") : UTF_8.decode(bytes);
    problem = "json";
    return { text: JSON.parse(`"${raw}"`), problem: null };
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
export class Base64String {
  readonly #options: Base64StringOptions;
  readonly #escaped = new StringDecoder();
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
    return this.#escaped.problem;
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
    const raw = this.#escaped.decode(part, isEnd);
    const isPlain = raw !== null && this.#decoder.isValid && !raw.includes("\\") && !endsInControls(raw);
    let length = 0;
    if (isPlain) length = this.#decoder.add(this.#behindHead(raw), memory, this.#used);
    if (isPlain && this.#decoder.isValid) this.#chars += raw.length;
    else {
      // Only a part that is not plain Base64 can hold characters that JSON forbids.
      const text = raw === null ? null : this.#escaped.unescape(raw);
      this.#chars += text?.length ?? 0;
      if (text === null) this.#decoder.fail();
      else length = this.#decoder.add(this.#behindHead(text), memory, this.#used);
    }
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

/** The decoder keeps up to three characters for later without checking them. */
function endsInControls(text: string): boolean {
  return Array.from(text.slice(-3)).some((character) => character < " ");
}
