import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import type { CheckedContent } from "../../domain/checked-content.ts";
import { type FindFileImage, fileImagesOf } from "../../domain/files/uploads.ts";
import type { SentTexts } from "../../domain/images/sent-image.ts";
import { invalidLine, type JobOfLines, type Line, type LineReader } from "../../domain/jobs/take-in.ts";
import type { ModelEntry, OptionFacts } from "../../domain/models.ts";
import type { BlobStore } from "../../domain/ports/blob-store.ts";
import type { ImageInspector } from "../../domain/ports/image-inspector.ts";
import type { Stores } from "../../domain/ports/stores.ts";
import type { Clock } from "../../kernel/clock.ts";
import { isObject } from "../../kernel/json.ts";
import { formatBytes, isLongerThan } from "../../kernel/text.ts";
import { ImageExtraction, type ImageTexts } from "../request-body/image-extraction.ts";
import type { BodyFormat } from "../request-body/json-reader.ts";
import { simulation } from "./results.ts";

/** A line that is a JSON object, or what is wrong with it. `number` counts all lines, from 1. */
type JsonLine = { number: number } & (
  | { value: object; sent: SentTexts }
  /** `names`: the fields of its beginning that may be the client's name of the line. */
  | { problem: string; names: object }
);

/** The format of a line, and the rules for its images; null when these are not taken out. */
interface LinesFormat {
  format: BodyFormat;
  images: Omit<ImageTexts, "blobs"> | null;
}

const NEWLINE = 0x0a;
const BLANK = new Set([0x20, 0x09, 0x0d]);

/**
 * Reads JSON lines, one at a time. The images of a large line go to the disk while it is read, so memory holds little of
 * it; they can be used until the next line is asked for. Blank lines do not count. `maxBytes` is the size of the largest
 * line.
 */
export async function* jsonLines(
  { format, images, maxBytes }: { format: BodyFormat; images: ImageTexts | null; maxBytes: number },
  input: AsyncIterable<Buffer>,
): AsyncGenerator<JsonLine> {
  const begin = () => new LineInput(new ImageExtraction(format, images, null), maxBytes);
  let line = begin();
  let number = 1;
  try {
    for await (const chunk of input) {
      let from = 0;
      for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
        if (end > from) await line.add(chunk.subarray(from, end));
        from = end + 1;
        const at = number++;
        if (line.isBlank) continue;
        yield { number: at, ...(await line.end()) };
        await line.discard();
        line = begin();
      }
      await line.add(chunk.subarray(from));
    }
    if (!line.isBlank) yield { number, ...(await line.end()) };
  } finally {
    await line.discard();
  }
}

/** The name of a line is looked for in so many of its first bytes. */
const HEAD_BYTES = 4096;
const NAMES = /"(custom_id|key)"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)/g;

/** Returns the fields at the beginning of a broken line that may be its name. */
function namesIn(head: Buffer): object {
  const found = [...head.toString().matchAll(NAMES)].flatMap(([, name = "", json = ""]) => {
    try {
      return [[name, JSON.parse(json)]];
    } catch {
      return [];
    }
  });
  return Object.fromEntries(found.reverse());
}

/** One line as it arrives. */
class LineInput {
  readonly #extraction: ImageExtraction;
  readonly #maxBytes: number;
  #sizeBytes = 0;
  #head = Buffer.alloc(0);
  isBlank = true;

  constructor(extraction: ImageExtraction, maxBytes: number) {
    this.#extraction = extraction;
    this.#maxBytes = maxBytes;
  }

  async add(bytes: Buffer): Promise<void> {
    if (this.isBlank) this.isBlank = bytes.every((byte) => BLANK.has(byte));
    if (this.isBlank) return;
    this.#sizeBytes += bytes.length;
    if (this.#head.length < HEAD_BYTES)
      this.#head = Buffer.concat([this.#head, bytes.subarray(0, HEAD_BYTES - this.#head.length)]);
    if (this.#sizeBytes <= this.#maxBytes) await this.#extraction.add(bytes);
  }

  /** Returns the line after its last byte. */
  async end(): Promise<{ value: object; sent: SentTexts } | { problem: string; names: object }> {
    const broken = (problem: string) => ({ problem, names: namesIn(this.#head) });
    if (this.#sizeBytes > this.#maxBytes)
      return broken(`The line is larger than ${formatBytes(this.#maxBytes)}.`);
    try {
      const { value, sent } = await this.#extraction.end();
      return isObject(value) ? { value, sent } : broken("The line is not a JSON object.");
    } catch (error) {
      if (!(error instanceof ImgbatchError)) throw error;
      return broken(error.code === "INVALID_JSON" ? lineWords(error.message) : error.message);
    }
  }

  discard(): Promise<void> {
    return this.#extraction.discard();
  }
}

/** The reader speaks of the body of a request. */
const lineWords = (message: string) => message.replace("The body", "The line");

export interface LineRules {
  stores: Stores;
  clock: Clock;
  limits: Limits;
  features: { strictImageConfig: boolean };
  inspector: ImageInspector;
  blobs: BlobStore;
}

/** How a surface reads the lines of one job. */
export interface LineFormat {
  /** Returns the client's name of the line; undefined when it has none. */
  keyOf(line: object): unknown;
  /** Checks the request of a line. Throws `ImgbatchError` with the problem. */
  check(line: object, asked: LineContext): Promise<CheckedContent>;
}

interface LineContext {
  model: ModelEntry;
  options: OptionFacts;
  imageLimit: number;
  sent: SentTexts;
  findFileImage: FindFileImage;
}

/** Returns a reader of lines whose format begins anew with each job. */
export function lineReader(
  rules: LineRules,
  { format: lineFormat, images }: LinesFormat,
  formatOf: (job: JobOfLines) => LineFormat,
): LineReader {
  const { blobs, limits } = rules;
  const options = {
    format: lineFormat,
    images: images && { ...images, blobs },
    maxBytes: limits.realtimeBodyBytes,
  };
  return async function* (model, input, job) {
    const format = formatOf(job);
    const simulated = simulation(job, rules.clock);
    for await (const line of jsonLines(options, input)) {
      // Requests that came in the body have no lines.
      const place = job.input?.fileName == null ? "" : `line ${line.number}: `;
      if ("problem" in line) {
        const key = jsonKeyOf(format, line.names);
        yield { ...("problem" in key ? { key: null } : key), error: invalidLine(place + line.problem) };
        continue;
      }
      // A line keeps the files that it names only until its images are stored.
      const files = fileImagesOf(rules, job.apiKeyId);
      try {
        const { options: facts, imageLimit } = job;
        const asked = { model, options: facts, imageLimit, sent: line.sent, findFileImage: files.find };
        yield { ...simulated(await checked(format, line.value, asked, place)), place };
      } finally {
        await files.release();
      }
    }
  };
}

async function checked(format: LineFormat, line: object, asked: LineContext, place: string): Promise<Line> {
  const named = jsonKeyOf(format, line);
  if ("problem" in named) return { key: null, error: invalidLine(place + named.problem) };
  try {
    return { ...named, content: await format.check(line, asked) };
  } catch (error) {
    if (!(error instanceof ImgbatchError)) throw error;
    return { ...named, error: invalidLine(place + error.message) };
  }
}

/** Returns the client's name of a line as JSON, null when it has none, or why it cannot be kept. */
function jsonKeyOf(format: LineFormat, line: object): { key: string | null } | { problem: string } {
  const given = format.keyOf(line);
  const problem = keyProblem(given);
  if (problem !== null) return { problem };
  return { key: given === undefined ? null : JSON.stringify(given) };
}

/** The names of all lines are in memory together when the items of their job are written. */
function keyProblem(key: unknown): string | null {
  const { lineKeyChars, lineKeyJsonChars } = FIXED_LIMITS;
  if (typeof key === "string") {
    return isLongerThan(key, lineKeyChars)
      ? `The name of the line has more than ${lineKeyChars} characters.`
      : null;
  }
  const isLong = key !== undefined && JSON.stringify(key).length > lineKeyJsonChars;
  return isLong ? `The name of the line has more than ${lineKeyJsonChars} characters as JSON.` : null;
}
