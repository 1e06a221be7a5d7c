import { setImmediate } from "node:timers/promises";
import type { SentImage, SentText, SentTexts } from "../../domain/images/sent-image.ts";
import type { BlobDraft, BlobStore } from "../../domain/ports/blob-store.ts";
import type { Base64Rules } from "../../kernel/base64.ts";
import type { BodyReservation } from "./body-budgets.ts";
import { type ImagePart, JsonReader } from "./json-reader.ts";
import { Base64String } from "./json-strings.ts";
import type { BodyFormat } from "./json-value.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
/** Sizes of the pieces that a small body is kept in. */
const PIECE_BYTES = [4 * KIB, 64 * KIB, MIB] as const;

/** Copies chunks of any size into pieces. Keeping a chunk would hold far more memory than its bytes. */
class ChunkBuffer {
  size = 0;
  readonly #full: Uint8Array[] = [];
  #last = new Uint8Array(0);
  #used = 0;

  add(chunk: Uint8Array): void {
    this.size += chunk.length;
    for (let rest = chunk; rest.length > 0; ) {
      if (this.#used === this.#last.length) this.#grow();
      const part = rest.subarray(0, this.#last.length - this.#used);
      this.#last.set(part, this.#used);
      this.#used += part.length;
      rest = rest.subarray(part.length);
    }
  }

  /** Returns all bytes and forgets them. */
  take(): Uint8Array[] {
    const all = [...this.#full.splice(0), this.#last.subarray(0, this.#used)];
    this.#last = new Uint8Array(0);
    this.#used = 0;
    return all;
  }

  #grow(): void {
    if (this.#used > 0) this.#full.push(this.#last);
    this.#last = new Uint8Array(PIECE_BYTES[this.#full.length] ?? MIB);
    this.#used = 0;
  }
}

/** A body up to this size is read at once, and its images stay in memory. */
const WHOLE_BYTES = 1024 * KIB;
const STEP_BYTES = 64 * KIB;
const STEPS_BEFORE_YIELD = 4;
const MEMORY_BYTES = 256 * KIB;

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
  /** The body, while it is small. */
  readonly #whole = new ChunkBuffer();
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
    this.#whole.add(chunk);
    if (this.#whole.size > this.#wholeBytes) return this.#work(() => this.#begin());
    return this.#count(this.#whole.size);
  }

  /**
   * Returns the body after its last chunk. Throws `INVALID_JSON`, or the error about the field that exceeds a bound. Such a
   * body is read to its end before, because its sender reads no response earlier.
   */
  async end(): Promise<TakenBody> {
    let reader = this.#reader;
    if (reader === null) {
      reader = new JsonReader(this.#format, { takesImages: false });
      for (const _ of reader.read(Buffer.concat(this.#whole.take())));
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
    for (const { buffer, byteOffset, length } of this.#whole.take())
      await this.#step(Buffer.from(buffer, byteOffset, length));
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
