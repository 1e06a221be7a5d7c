import { ImgbatchError } from "../../contract/errors.ts";
import type { SentTexts } from "../../domain/images/sent-image.ts";
import { formatBytes } from "../../kernel/text.ts";
import type { BodyFormat } from "./body-shape.ts";
import { ImageExtraction, type ImageTexts } from "./image-extraction.ts";

/** A line that is a JSON object, or what is wrong with it. */
type JsonLine = { value: object; sent: SentTexts } | { problem: string };

/** The format of a line, and the rules for its images; null when these are not taken out. */
export interface LinesFormat {
  format: BodyFormat;
  images: Omit<ImageTexts, "blobs"> | null;
}

const NEWLINE = 0x0a;
const BLANK = new Set([0x20, 0x09, 0x0d]);

/**
 * Reads JSON lines, one at a time. The images of a large line go to the disk while it is read, so memory holds little of
 * it; they can be used until the next line is asked for. Blank lines do not count.
 */
export class JsonLines {
  readonly #options: { format: BodyFormat; images: ImageTexts | null; maxBytes: number };

  /** `maxBytes` is the size of the largest line. */
  constructor(options: { format: BodyFormat; images: ImageTexts | null; maxBytes: number }) {
    this.#options = options;
  }

  async *read(input: AsyncIterable<Buffer>): AsyncGenerator<JsonLine> {
    let line = this.#begin();
    try {
      for await (const chunk of input) {
        let from = 0;
        for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
          if (end > from) await line.add(chunk.subarray(from, end));
          from = end + 1;
          if (line.isBlank) continue;
          yield await line.end();
          await line.discard();
          line = this.#begin();
        }
        await line.add(chunk.subarray(from));
      }
      if (!line.isBlank) yield await line.end();
    } finally {
      await line.discard();
    }
  }

  #begin(): LineInput {
    const { format, images, maxBytes } = this.#options;
    return new LineInput(new ImageExtraction(format, images, null), maxBytes);
  }
}

/** One line as it arrives. */
class LineInput {
  readonly #extraction: ImageExtraction;
  readonly #maxBytes: number;
  #sizeBytes = 0;
  isBlank = true;

  constructor(extraction: ImageExtraction, maxBytes: number) {
    this.#extraction = extraction;
    this.#maxBytes = maxBytes;
  }

  async add(bytes: Buffer): Promise<void> {
    if (this.isBlank) this.isBlank = bytes.every((byte) => BLANK.has(byte));
    if (this.isBlank) return;
    this.#sizeBytes += bytes.length;
    if (!this.#isTooLarge) await this.#extraction.add(bytes);
  }

  get #isTooLarge(): boolean {
    return this.#sizeBytes > this.#maxBytes;
  }

  /** Returns the line after its last byte. */
  async end(): Promise<JsonLine> {
    if (this.#isTooLarge) return { problem: `The line is larger than ${formatBytes(this.#maxBytes)}.` };
    try {
      const { value, sent } = await this.#extraction.end();
      return isObject(value) ? { value, sent } : { problem: "The line is not a JSON object." };
    } catch (error) {
      if (!(error instanceof ImgbatchError)) throw error;
      return { problem: error.code === "INVALID_JSON" ? lineWords(error.message) : error.message };
    }
  }

  async discard(): Promise<void> {
    await this.#extraction.discard();
  }
}

export const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The reader speaks of the body of a request. */
const lineWords = (message: string) => message.replace("The body", "The line");
