import type { BlobDraft } from "../../domain/ports/blob-store.ts";
import { type GeneratedImages, type LargeImage, ProviderError } from "../../domain/ports/image-provider.ts";
import { hideApiKeys } from "../../kernel/hide-keys.ts";
import { LongJsonReader } from "../../kernel/long-json.ts";
import { MemoryBudget } from "../../kernel/memory-budget.ts";
import { unlessAborted } from "../../kernel/signals.ts";
import { formatBytes } from "../../kernel/text.ts";
import type { AdapterDeps } from "./adapter.ts";
import { errorOf, textAt, valueAt } from "./answer-json.ts";
import { ambiguous } from "./classify.ts";

const MIB = 2 ** 20;
/** The most images of one answer. */
export const MOST_IMAGES = 16;
const MAX_IMAGE_BYTES = 64 * MIB;
/** Other long texts are Base64, too, such as the signatures of thoughts. */
const MOST_LONG_TEXTS = 4 * MOST_IMAGES;
/** The bytes that show the type of an image. */
const HEAD_BYTES = 12;
/** The most text of an answer, without the images in it. */
export const MAX_TEXT_BYTES = 16 * MIB;
/** An image has 86 MiB as Base64 at most; an answer may hold several. */
const MAX_ANSWER_BYTES = 384 * MIB;
/** Of the images of an answer so much is in memory; the others go to the disk as they come. */
const MOST_IN_MEMORY = 16 * MIB;

/**
 * The memory of all answers of all upstreams, from their first byte until their images are stored: 256 MiB at most, with two
 * answers of the largest size. An answer that gets none waits, and ends at the time limit of its request. The oldest one
 * that is being read always goes on, so none waits for another that waits.
 */
const BUDGET = new MemoryBudget(256 * MIB - 2 * (MAX_TEXT_BYTES + MOST_IN_MEMORY));

/** Throws for more images than an answer may have. */
export function refuseMany(name: string, count: number): void {
  if (count <= MOST_IMAGES) return;
  throw ambiguous(name, `an answer with ${count} images: at most ${MOST_IMAGES} are taken`, 200);
}

/** The memory and the images of one answer, while it is read and until its images are stored. */
export class AnswerImages {
  readonly #name: string;
  readonly #draft: AdapterDeps["draft"];
  readonly #signal: AbortSignal;
  readonly #share = BUDGET.enter();
  readonly #drafts: BlobDraft[] = [];
  /** The most bytes of images in memory. */
  readonly #most: number;
  #opened = 0;
  #inMemory = 0;

  /** `name`: the provider. `most`: see `MOST_IN_MEMORY`. */
  constructor(
    name: string,
    { draft }: Pick<AdapterDeps, "draft">,
    signal: AbortSignal,
    most = MOST_IN_MEMORY,
  ) {
    this.#name = name;
    this.#draft = draft;
    this.#signal = signal;
    this.#most = most;
  }

  /** Reserves memory. Resolves, or returns nothing, when it is reserved; rejects with the reason of the signal. */
  take(bytes: number): Promise<void> | undefined {
    const waiting = this.#share.take(bytes);
    return waiting === null ? undefined : unlessAborted(waiting, this.#signal);
  }

  /** Reads JSON, whose images go where there is a place for them, and returns it with the number of its bytes. */
  async readJson(body: AsyncIterable<Buffer>): Promise<{ reader: LongJsonReader<ImageSink>; bytes: number }> {
    const reader = new LongJsonReader(() => this.open());
    let bytes = 0;
    for await (const chunk of body) {
      bytes += chunk.length;
      // Leaving the loop ends the connection.
      if (bytes > MAX_ANSWER_BYTES) throw this.#tooLong(MAX_ANSWER_BYTES);
      const before = reader.keptBytes;
      await reader.add(chunk);
      if (reader.keptBytes > MAX_TEXT_BYTES) throw this.#tooLong(MAX_TEXT_BYTES);
      if (reader.keptBytes > before) await this.take(reader.keptBytes - before);
    }
    return { reader, bytes };
  }

  /** Reads an answer without images, and frees its memory. */
  async readText(body: AsyncIterable<Buffer>): Promise<Buffer> {
    const chunks: Buffer[] = [];
    let bytes = 0;
    try {
      for await (const chunk of body) {
        bytes += chunk.length;
        if (bytes > MAX_TEXT_BYTES) throw this.#tooLong(MAX_TEXT_BYTES);
        await this.take(chunk.length);
        chunks.push(chunk);
      }
      return Buffer.concat(chunks, bytes);
    } finally {
      await this.discard();
    }
  }

  #tooLong(most: number): ProviderError {
    return ambiguous(this.#name, `an answer of more than ${most} bytes`, 200);
  }

  /** Begins an image, or something else in Base64. Throws `ProviderError` for one too many. */
  open(): ImageSink {
    if (++this.#opened > MOST_LONG_TEXTS)
      throw ambiguous(this.#name, `an answer with more than ${MOST_LONG_TEXTS} images and long texts`, 200);
    return new ImageSink(this);
  }

  /**
   * Returns null when these bytes of an image may be in memory, else the file for all of it. Without a disk all may be in
   * memory.
   */
  async place(bytes: number): Promise<BlobDraft | null> {
    if (this.#draft !== undefined && this.#inMemory + bytes > this.#most) {
      const draft = this.#draft();
      this.#drafts.push(draft);
      return draft;
    }
    this.#inMemory += bytes;
    await this.take(bytes);
    return null;
  }

  /** Throws for an image of more bytes than one may have. */
  refuseTooLarge(bytes: number): void {
    if (bytes <= MAX_IMAGE_BYTES) return;
    const message = `${this.#name} sent an image that is larger than ${formatBytes(MAX_IMAGE_BYTES)}.`;
    throw new ProviderError("INVALID_IMAGE_OUTPUT", message, { trouble: "ambiguous", upstreamStatus: 200 });
  }

  /** The answer has been read: it needs no more memory. */
  finish(): void {
    this.#share.finish();
  }

  /** Frees the memory and the disk. */
  async discard(): Promise<void> {
    this.#share.leave();
    await Promise.all(this.#drafts.map((draft) => draft.discard().catch(() => {})));
  }
}

/** An image that comes in pieces: in memory, or in a file as soon as the images of its answer are too large for that. */
export class ImageSink {
  readonly #images: AnswerImages;
  #pieces: Buffer[] = [];
  #draft: BlobDraft | null = null;
  #length = 0;
  /** The first bytes, which show the type of the image. */
  head = Buffer.alloc(0);

  constructor(images: AnswerImages) {
    this.#images = images;
  }

  /** Rejects with `ProviderError` for too large an image, and with `StorageUnavailable`. */
  async write(bytes: Buffer): Promise<void> {
    this.#length += bytes.length;
    this.#images.refuseTooLarge(this.#length);
    if (this.head.length < HEAD_BYTES)
      this.head = Buffer.concat([this.head, bytes.subarray(0, HEAD_BYTES)]).subarray(0, HEAD_BYTES);
    this.#pieces.push(bytes);
    this.#draft ??= await this.#images.place(bytes.length);
    if (this.#draft === null) return;
    for (const piece of this.#pieces.splice(0)) await this.#draft.write(piece);
  }

  /** The whole image. */
  get image(): Buffer | LargeImage {
    const draft = this.#draft;
    if (draft !== null)
      return { length: this.#length, lend: (work) => draft.lend(work), read: () => draft.read() };
    // It may be asked for more than once.
    if (this.#pieces.length !== 1) this.#pieces = [Buffer.concat(this.#pieces, this.#length)];
    return this.#pieces[0] as Buffer;
  }
}

const LINE_END = 0x0a;
/** So many bytes of a line show whether it is data, and whether it is the mark of the end. */
const LINE_HEAD_BYTES = 16;

/**
 * Turns server-sent events into the JSON list of their data, while they come. Some upstreams stream an answer though nobody
 * asked for that.
 */
export async function* eventsAsJson(body: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let head = Buffer.alloc(0);
  let kind: "unknown" | "data" | "other" = "unknown";
  let count = 0;
  let isInEvent = false;
  /** Returns the data at the beginning of a line, when enough of the line is there. */
  const begin = (part: Buffer, isWhole: boolean): Buffer => {
    head = Buffer.concat([head, part]);
    if (head.length < LINE_HEAD_BYTES && !isWhole) return Buffer.alloc(0);
    const [, data] = /^data:\s*(.*)$/s.exec(head.toString("latin1")) ?? [];
    kind = data === undefined || data.trim() === "" || data.startsWith("[DONE]") ? "other" : "data";
    if (/^\r?$/.test(head.toString("latin1"))) isInEvent = false;
    if (kind === "other") return Buffer.alloc(0);
    const before = isInEvent ? "\n" : count++ === 0 ? "" : ",";
    isInEvent = true;
    return Buffer.from(before + data, "latin1");
  };
  yield Buffer.from("[");
  for await (const chunk of body) {
    for (let at = 0; at < chunk.length; ) {
      const found = chunk.indexOf(LINE_END, at);
      const part = chunk.subarray(at, found < 0 ? chunk.length : found);
      if (kind === "unknown") yield begin(part, found >= 0);
      else if (kind === "data") yield part;
      at += part.length + 1;
      if (found < 0) continue;
      kind = "unknown";
      head = Buffer.alloc(0);
    }
  }
  if (kind === "unknown" && head.length > 0) yield begin(Buffer.alloc(0), true);
  yield Buffer.from("]");
}

/**
 * Returns the events of a stream of OpenAI's Images API as one answer: the finished pictures in `data`, the unfinished ones in
 * `partials`; or the error that has ended the stream.
 */
export function answerOfEvents(events: unknown): unknown {
  if (!Array.isArray(events)) return events;
  const typeOf = (event: unknown) => textAt(event, "type") ?? "";
  const completed = events.filter((event) => typeOf(event).endsWith(".completed"));
  const last = completed.at(-1);
  const partials = events.filter((event) => typeOf(event).endsWith(".partial_image"));
  if (last !== undefined)
    return { data: completed, partials, usage: valueAt(last, "usage"), model: valueAt(last, "model") };
  return events.find((event) => errorOf(event) !== undefined) ?? events.at(-1);
}

/** The JSON of an answer, and the images in it. */
export interface ImagesJson {
  value: unknown;
  /** The image that a text of `value` stands for: Base64, or a data URL. What is no Base64 is an image without bytes. */
  decode(text: string): Buffer | LargeImage;
  /** Where images go that are fetched for the answer. */
  images: AnswerImages;
}

export function imagesJson(
  value: unknown,
  reader: LongJsonReader<ImageSink>,
  images: AnswerImages,
): ImagesJson {
  const decode = (text: string) => {
    const decoded = reader.decode(text);
    return decoded instanceof ImageSink ? decoded.image : (decoded ?? Buffer.alloc(0));
  };
  return { value, decode, images };
}

/**
 * Returns what an answer says, with the long texts that were taken out of it, and without keys, which an upstream may repeat.
 * A long text that went to the disk is left out.
 */
export function wholeWords<T extends object>(words: T, decode: ImagesJson["decode"]): T {
  const whole = (_name: string, value: unknown) => {
    if (typeof value !== "string") return value;
    if (!LongJsonReader.isMark(value)) return hideApiKeys(value);
    const bytes = decode(value);
    return Buffer.isBuffer(bytes) ? bytes.toString("base64") : undefined;
  };
  return JSON.parse(JSON.stringify(words, whole)) as T;
}

/**
 * Reads an answer with images. When that fails, what it holds is freed; else by the `discard` of the result.
 */
export async function withImages(
  images: AnswerImages,
  read: () => Promise<GeneratedImages>,
): Promise<GeneratedImages> {
  try {
    const generated = await read();
    images.finish();
    return { ...generated, discard: () => images.discard() };
  } catch (error) {
    await images.discard();
    throw error;
  }
}
