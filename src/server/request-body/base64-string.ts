import { createHash } from "node:crypto";
import { imageInDraft, type SentText } from "../../domain/images/sent-image.ts";
import type { BlobDraft } from "../../domain/ports/blob-store.ts";
import { Base64Decoder, type Base64Rules, dataUrlHead } from "../../kernel/base64.ts";
import { StringDecoder, type StringProblem } from "./string-decoder.ts";

/** More than any type of an image needs. */
const LONGEST_HEAD = 200;

export interface Base64StringOptions {
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
