import { createHash } from "node:crypto";
import { imageInDraft, type SentText } from "../../domain/images/sent-image.ts";
import type { BlobDraft } from "../../domain/ports/blob-store.ts";
import { Base64Decoder, type Base64Rules } from "../../kernel/base64.ts";
import { StringDecoder, type StringProblem } from "./string-decoder.ts";

export interface Base64StringOptions {
  base64: Base64Rules;
  /** What decodes to more is not kept. */
  maxBytes: number;
  /** Where the bytes go. */
  draft: BlobDraft;
  /** Where bytes are gathered before they go there, much more than a part of text. For one text at a time. */
  memory: Buffer;
  /** Waits until so many bytes may be on the disk. */
  roomFor(bytes: number): Promise<void>;
}

/**
 * Decodes and hashes one long Base64 text while it arrives. What turns out not to be Base64, or to be too large, is
 * thrown away, and only looked through to its end.
 */
export class Base64String {
  readonly #options: Base64StringOptions;
  readonly #escaped = new StringDecoder();
  readonly #decoder: Base64Decoder;
  readonly #hash = createHash("sha256");
  #chars = 0;
  #used = 0;
  #sizeBytes = 0;
  #isDropped = false;

  constructor(options: Base64StringOptions) {
    this.#options = options;
    this.#decoder = new Base64Decoder(options.base64);
  }

  get problem(): StringProblem | null {
    return this.#escaped.problem;
  }

  /** Takes the next part, as it is written between the quotes. */
  async add(part: Buffer, isEnd: boolean): Promise<void> {
    const { memory, maxBytes } = this.#options;
    // What waited for its end comes on top.
    const needed = Base64Decoder.bytesFor(part.length) + 16;
    if (memory.length - this.#used < needed) await this.#write();
    const length = this.#decode(part, isEnd);
    this.#sizeBytes += length;
    if (!this.#decoder.isValid || this.#sizeBytes > maxBytes) return this.#drop();
    this.#hash.update(memory.subarray(this.#used, this.#used + length));
    this.#used += length;
  }

  /** What became of it, after its last part. */
  async end(): Promise<SentText> {
    const chars = this.#chars;
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
    if (isPlain) length = this.#decoder.add(raw, memory, this.#used);
    if (isPlain && this.#decoder.isValid) this.#chars += raw.length;
    else {
      // Only what is not plain Base64 is looked into for what no JSON text may hold.
      const text = raw === null ? null : this.#escaped.unescape(raw);
      this.#chars += text?.length ?? 0;
      if (text === null) this.#decoder.fail();
      else length = this.#decoder.add(text, memory, this.#used);
    }
    return isEnd ? length + this.#decoder.end(memory, this.#used + length) : length;
  }

  async #write(): Promise<void> {
    if (this.#used === 0) return;
    const bytes = this.#options.memory.subarray(0, this.#used);
    await this.#options.roomFor(bytes.length);
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

/** The decoder keeps up to three characters for later, unseen. */
function endsInControls(text: string): boolean {
  return Array.from(text.slice(-3)).some((character) => character < " ");
}
