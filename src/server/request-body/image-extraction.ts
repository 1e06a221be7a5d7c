import { createHash } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import {
  imageInDraft,
  type SentImage,
  type SentText,
  type SentTexts,
} from "../../domain/images/sent-image.ts";
import type { BlobDraft, BlobStore } from "../../domain/ports/blob-store.ts";
import { Base64Decoder, type Base64Rules, dataUrlHead } from "../../kernel/base64.ts";
import { JsonTextDecoder, type TextProblem } from "../../kernel/json-text.ts";
import type { BodyReservation } from "./body-budgets.ts";
import { type BodyFormat, type ImagePart, JsonReader } from "./json-reader.ts";

const KIB = 1024;
/** A body up to this size is read at once, and its images stay in memory. */
const WHOLE_BYTES = 1024 * KIB;
const STEP_BYTES = 64 * KIB;
const STEPS_BEFORE_YIELD = 4;
const MEMORY_BYTES = 256 * KIB;

/** More than any type of an image needs. */
const LONGEST_HEAD = 200;
/** How each data URL begins. */
const SCHEME = "data:";

interface Base64StringOptions {
  base64: Base64Rules;
  /** Whether the Base64 comes behind the head of a data URL. */
  isDataUrl: boolean | "maybe";
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
  readonly #text = new JsonTextDecoder();
  readonly #decoder: Base64Decoder;
  readonly #hash = createHash("sha256");
  /** The head of a data URL, as far as it has arrived; null behind it. */
  #head: string | null;
  #hasHead = false;
  #chars = 0;
  #used = 0;
  #sizeBytes = 0;
  #isDropped = false;

  constructor(options: Base64StringOptions) {
    this.#options = options;
    this.#decoder = new Base64Decoder(options.base64);
    this.#head = options.isDataUrl === false ? null : "";
  }

  get problem(): TextProblem | null {
    return this.#text.problem;
  }

  /** Takes the next part of the bytes between the quotes. */
  async add(part: Buffer, isEnd: boolean): Promise<void> {
    const { memory, maxBytes } = this.#options;
    // Up to 16 bytes of earlier chunks may still be buffered.
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
    return { chars, isDataUrl: this.#hasHead, content: imageInDraft(this.#options.draft, facts) };
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
    const mayBeHead = SCHEME.startsWith(begun.slice(0, SCHEME.length).toLowerCase());
    if (!mayBeHead && this.#options.isDataUrl === "maybe") {
      this.#head = null;
      return begun;
    }
    this.#hasHead = length !== null;
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
  /** Whether they are data URLs (RFC 2397), with their Base64 behind a head; `maybe`: some are. Default: false. */
  areDataUrls?: boolean | "maybe";
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
    return { ...sent, content: known ?? sent.content };
  }
}
