import { randomBytes } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import type { SentImage, SentText, SentTexts } from "../../domain/images/sent-image.ts";
import type { BlobDraft, BlobStore } from "../../domain/ports/blob-store.ts";
import type { Base64Rules } from "../../kernel/base64.ts";
import { Base64String } from "./base64-string.ts";
import type { BodyReservation } from "./body-reservation.ts";
import { ChunkBuffer } from "./chunk-buffer.ts";
import type { StringProblem } from "./string-decoder.ts";
import { type BodyPart, StringFinder, type StringRange } from "./string-finder.ts";

const KIB = 1024;
/** A body up to this size stays as it is: it costs little, and nothing touches the disk for it. */
const WHOLE_BYTES = 1024 * KIB;
/** A text of a larger body that is shorter stays in it. */
const LONG_TEXT_BYTES = 16 * KIB;
const STEP_BYTES = 64 * KIB;
const STEPS_PER_TURN = 4;
const MEMORY_BYTES = 256 * KIB;

/** Where a kind of request has its images, and what they may be. */
export interface ImageTexts {
  place: StringRange;
  base64: Base64Rules;
  maxBytes: number;
  blobs: Pick<BlobStore, "draft">;
}

/** What is left of a body once its long texts are taken out. */
export interface TakenBody {
  pieces: Uint8Array<ArrayBuffer>[];
  /** What became of the texts, by what stands for each in the rest. */
  sent: SentTexts;
  /** What is wrong with a text that was taken out, as JSON. */
  problem: StringProblem | null;
}

/**
 * Takes a body as it comes. Of a large one the images go to the disk while they arrive, decoded and hashed, so that no
 * more of them is in memory than a moment brings; equal ones are kept once.
 */
export class ImageExtraction {
  readonly #texts: ImageTexts;
  readonly #room: BodyReservation;
  readonly #wholeBytes: number;
  readonly #prefix = randomBytes(16).toString("hex");
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
  constructor(texts: ImageTexts, room: BodyReservation, wholeBytes = WHOLE_BYTES) {
    this.#texts = texts;
    this.#room = room;
    this.#wholeBytes = wholeBytes;
  }

  /** Null when the next chunk may follow now, else when it may. One call at a time. */
  add(chunk: Buffer): Promise<void> | null {
    if (this.#finder !== null) return this.#work(() => this.#step(chunk));
    this.#pieces.add(chunk);
    if (this.#pieces.size > this.#wholeBytes) return this.#work(() => this.#begin());
    return this.#count();
  }

  /** The body, after its last chunk. */
  async end(): Promise<TakenBody> {
    for (const part of this.#finder?.end() ?? []) await this.#take(part);
    this.#room.finish();
    this.#memory = Buffer.alloc(0);
    return { pieces: this.#pieces.all(), sent: this.#sent, problem: this.#problem };
  }

  /** Ends all of it: what no blob was made of is removed. */
  async discard(): Promise<void> {
    this.#isOver = true;
    this.#room.leave();
    await this.#working.catch(() => {});
    // What cannot be removed now is removed by the next start.
    await Promise.allSettled(this.#drafts.map((draft) => draft.discard()));
  }

  #work(work: () => Promise<void>): Promise<void> {
    this.#working = work();
    return this.#working;
  }

  async #begin(): Promise<void> {
    const whole = this.#pieces.all();
    this.#pieces = new ChunkBuffer();
    this.#finder = new StringFinder(this.#texts.place, LONG_TEXT_BYTES);
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
      if (++this.#steps % STEPS_PER_TURN === 0) await setImmediate();
    }
  }

  /** Counts what is kept in memory. */
  #count(): Promise<void> | null {
    const more = this.#pieces.size - this.#counted;
    if (more <= 0) return null;
    this.#counted += more;
    return this.#room.memoryFor(more);
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
    const { base64, maxBytes } = this.#texts;
    const roomFor = async (bytes: number) => {
      await this.#room.diskFor(bytes);
    };
    return new Base64String({ base64, maxBytes, draft, memory: this.#memory, roomFor });
  }

  async #close(text: Base64String): Promise<void> {
    this.#text = null;
    const name = `${this.#prefix}.${this.#sent.size}`;
    this.#pieces.add(Buffer.from(name));
    this.#problem = this.#problem === "utf-8" ? "utf-8" : (text.problem ?? this.#problem);
    this.#sent.set(name, await this.#once(await text.end()));
  }

  /** An image that came before, in the place of an equal one. */
  async #once(sent: SentText): Promise<SentText> {
    if (typeof sent.content === "string") return sent;
    const { sha256 } = sent.content;
    const known = this.#images.get(sha256);
    if (known) await this.#drafts.pop()?.discard();
    else this.#images.set(sha256, sent.content);
    return { chars: sent.chars, content: known ?? sent.content };
  }
}
