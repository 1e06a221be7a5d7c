import { randomBytes } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import type { SentImage, SentText, SentTexts } from "../../domain/images/sent-image.ts";
import type { BlobDraft, BlobStore } from "../../domain/ports/blob-store.ts";
import type { Base64Rules } from "../../kernel/base64.ts";
import { Base64String } from "./base64-string.ts";
import type { BodyReservation } from "./body-reservation.ts";
import { ChunkBuffer } from "./chunk-buffer.ts";
import type { StringProblem } from "./string-decoder.ts";
import { type BodyPart, StringFinder, type StringPath } from "./string-finder.ts";

const KIB = 1024;
/** A body up to this size stays in memory as it is. */
const WHOLE_BYTES = 1024 * KIB;
/** A shorter string stays in its body. */
const LONG_TEXT_BYTES = 16 * KIB;
const STEP_BYTES = 64 * KIB;
const STEPS_BEFORE_YIELD = 4;
const MEMORY_BYTES = 256 * KIB;

/** The path of the images in a request, and their rules. */
export interface ImageTexts {
  path: StringPath;
  base64: Base64Rules;
  /** Whether they are data URLs (RFC 2397), with their Base64 behind a head. Default: false. */
  areDataUrls?: boolean;
  maxBytes: number;
  blobs: Pick<BlobStore, "draft">;
}

/** A body without its long strings. */
export interface TakenBody {
  pieces: Uint8Array<ArrayBuffer>[];
  /** The outcome of each string, by the name that replaces it in the body. */
  sent: SentTexts;
  /** The problem of a string that was taken out: it is not valid JSON. */
  problem: StringProblem | null;
}

/**
 * Takes a body as it arrives. The images of a large body are decoded, hashed and written to the disk meanwhile, so memory
 * holds only a small part of them. Equal images are kept once.
 */
export class ImageExtraction {
  readonly #texts: ImageTexts;
  readonly #reservation: BodyReservation;
  readonly #wholeBytes: number;
  /** Of the names that replace strings; empty before the first one. */
  #prefix = "";
  readonly #sent = new Map<string, SentText>();
  readonly #drafts: BlobDraft[] = [];
  readonly #images = new Map<string, SentImage>();
  #pieces = new ChunkBuffer();
  #finder: StringFinder | null = null;
  #memory: Buffer = Buffer.alloc(0);
  #counted = 0;
  #text: Base64String | null = null;
  #problem: StringProblem | null = null;
  #steps = 0;
  #working: Promise<void> = Promise.resolve();
  #isOver = false;

  /** `wholeBytes` is for tests. */
  constructor(texts: ImageTexts, reservation: BodyReservation, wholeBytes = WHOLE_BYTES) {
    this.#texts = texts;
    this.#reservation = reservation;
    this.#wholeBytes = wholeBytes;
  }

  /** Returns null when the next chunk may follow now, else a promise of that moment. One call at a time. */
  add(chunk: Buffer): Promise<void> | null {
    if (this.#finder !== null) return this.#work(() => this.#step(chunk));
    this.#pieces.add(chunk);
    if (this.#pieces.size > this.#wholeBytes) return this.#work(() => this.#begin());
    return this.#count();
  }

  /** Returns the body after its last chunk. */
  async end(): Promise<TakenBody> {
    for (const part of this.#finder?.end() ?? []) await this.#take(part);
    this.#reservation.finish();
    this.#memory = Buffer.alloc(0);
    return { pieces: this.#pieces.all(), sent: this.#sent, problem: this.#problem };
  }

  /** Stops the work and removes the drafts that did not become blobs. */
  async discard(): Promise<void> {
    this.#isOver = true;
    this.#reservation.leave();
    await this.#working.catch(() => {});
    // The next start of the service removes drafts that cannot be removed now.
    await Promise.allSettled(this.#drafts.map((draft) => draft.discard()));
  }

  #work(work: () => Promise<void>): Promise<void> {
    this.#working = work();
    return this.#working;
  }

  async #begin(): Promise<void> {
    const whole = this.#pieces.all();
    this.#pieces = new ChunkBuffer();
    this.#finder = new StringFinder(this.#texts.path, LONG_TEXT_BYTES);
    this.#memory = Buffer.allocUnsafeSlow(MEMORY_BYTES);
    for (const { buffer, byteOffset, length } of whole)
      await this.#step(Buffer.from(buffer, byteOffset, length));
  }

  async #step(bytes: Buffer): Promise<void> {
    for (let at = 0; at < bytes.length; at += STEP_BYTES) {
      for (const part of this.#finder?.read(bytes.subarray(at, at + STEP_BYTES)) ?? []) {
        await this.#take(part);
        if (this.#isOver) throw new Error("the request ended early");
      }
      await this.#count();
      if (++this.#steps % STEPS_BEFORE_YIELD === 0) await setImmediate();
    }
  }

  /** Reserves memory for the bytes kept since the last call. */
  #count(): Promise<void> | null {
    const more = this.#pieces.size - this.#counted;
    if (more <= 0) return null;
    this.#counted += more;
    return this.#reservation.memoryFor(more);
  }

  async #take(part: BodyPart): Promise<void> {
    if (part.kind === "rest") return this.#pieces.add(part.bytes);
    this.#text ??= this.#open();
    await this.#text.add(part.bytes, part.isEnd);
    if (part.isEnd) await this.#close(this.#text);
  }

  #open(): Base64String {
    const draft = this.#texts.blobs.draft();
    this.#drafts.push(draft);
    const { base64, areDataUrls = false, maxBytes } = this.#texts;
    const reserveDisk = async (bytes: number) => {
      await this.#reservation.diskFor(bytes);
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

  async #close(text: Base64String): Promise<void> {
    this.#text = null;
    this.#prefix ||= randomBytes(16).toString("hex");
    const name = `${this.#prefix}.${this.#sent.size}`;
    this.#pieces.add(Buffer.from(name));
    this.#problem = this.#problem === "utf-8" ? "utf-8" : (text.problem ?? this.#problem);
    this.#sent.set(name, await this.#once(await text.end()));
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
