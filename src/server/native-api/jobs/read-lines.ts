import { ImgbatchError } from "../../../contract/errors.ts";
import type { Limits } from "../../../contract/limits.ts";
import { type FileImages, fileImagesOf } from "../../../domain/files/files.ts";
import type { Line, LineReader } from "../../../domain/lines/line.ts";
import type { ModelEntry } from "../../../domain/models.ts";
import type { BlobStore } from "../../../domain/ports/blob-store.ts";
import type { ImageInspector } from "../../../domain/ports/image-inspector.ts";
import type { Stores } from "../../../domain/ports/stores.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { formatBytes } from "../../../kernel/text.ts";
import { BodyBudgets, BodyReservation } from "../../request-body/body-reservation.ts";
import { ImageExtraction } from "../../request-body/image-extraction.ts";
import { JsonParser } from "../../request-body/parse-json.ts";
import { contentImages } from "../generate.ts";
import { checkContent } from "../request/check-content.ts";

export interface LineRules {
  stores: Stores;
  clock: Clock;
  limits: Limits;
  features: { strictImageConfig: boolean };
  inspector: ImageInspector;
  blobs: BlobStore;
}

/** Lines wait for each other, not for the bodies of requests. */
const LONGEST_WAIT_MS = 2 ** 31 - 1;
const NEWLINE = 0x0a;
const BLANK = new Set([0x20, 0x09, 0x0d]);

/**
 * Returns the reader of the native API's batch jobs: a JSON object a line, with the `request` as `generateContent` takes it,
 * and the client's `key`. A line without `request` is the request itself. The images of a large line go to the disk while
 * it is read, so memory holds little of it. Blank lines do not count.
 */
export function nativeLines(rules: LineRules): LineReader {
  const shared = { rules, budgets: new BodyBudgets(), parser: new JsonParser() };
  return async function* (model, input, apiKeyId) {
    // A line keeps the files that it names only until its images are stored.
    const next = () => new LineInput(shared, { model, files: fileImagesOf(rules, apiKeyId) });
    let line = next();
    try {
      for await (const chunk of input) {
        let from = 0;
        for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
          await line.add(chunk.subarray(from, end));
          from = end + 1;
          if (line.isBlank) continue;
          yield await line.end();
          await line.discard();
          line = next();
        }
        await line.add(chunk.subarray(from));
      }
      if (!line.isBlank) yield await line.end();
    } finally {
      await line.discard();
    }
  };
}

/** What a line is checked for. */
interface Asked {
  model: ModelEntry;
  files: FileImages;
}

interface Shared {
  rules: LineRules;
  budgets: BodyBudgets;
  parser: JsonParser;
}

/** One line as it arrives. */
class LineInput {
  readonly #shared: Shared;
  readonly #asked: Asked;
  readonly #extraction: ImageExtraction;
  #sizeBytes = 0;
  isBlank = true;

  constructor(shared: Shared, asked: Asked) {
    this.#shared = shared;
    this.#asked = asked;
    const { limits, blobs } = shared.rules;
    const { path, base64 } = contentImages;
    const images = { path: [["request"], ...path], base64, maxBytes: limits.referenceImageBytes, blobs };
    this.#extraction = new ImageExtraction(
      images,
      new BodyReservation(shared.budgets, "", 0, LONGEST_WAIT_MS),
    );
  }

  async add(bytes: Buffer): Promise<void> {
    if (this.isBlank) this.isBlank = bytes.every((byte) => BLANK.has(byte));
    if (this.isBlank) return;
    this.#sizeBytes += bytes.length;
    if (!this.#isTooLarge) await this.#extraction.add(bytes);
  }

  get #isTooLarge(): boolean {
    return this.#sizeBytes > this.#shared.rules.limits.realtimeBodyBytes;
  }

  /** Returns the line after its last byte. */
  async end(): Promise<Line> {
    const { rules, parser } = this.#shared;
    if (this.#isTooLarge) {
      const problem = `The line is larger than ${formatBytes(rules.limits.realtimeBodyBytes)}.`;
      return { key: null, problem };
    }
    let key: string | null = null;
    try {
      const { pieces, sent, problem } = await this.#extraction.end();
      const value = await parser.parse(pieces, problem);
      if (!isObject(value)) return { key, problem: "The line is not a JSON object." };
      const line: { key?: unknown; request?: unknown } = value;
      key = line.key === undefined ? null : JSON.stringify(line.key);
      const { strictImageConfig } = rules.features;
      const request = line.request === undefined ? value : line.request;
      if (!isObject(request)) return { key, problem: "request: must be an object" };
      const { model, files } = this.#asked;
      const options = { ...rules, strictImageConfig, sent, findFileImage: files.find };
      const content = await checkContent(request, model, options);
      return { key, content };
    } catch (error) {
      if (!(error instanceof ImgbatchError)) throw error;
      return { key, problem: error.code === "INVALID_JSON" ? lineWords(error.message) : error.message };
    }
  }

  async discard(): Promise<void> {
    await this.#asked.files.release();
    await this.#extraction.discard();
  }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The parser speaks of the body of a request. */
const lineWords = (message: string) => message.replace("The body", "The line");
