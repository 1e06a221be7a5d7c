import { ProviderError } from "../../domain/ports/image-provider.ts";
import type { Clock } from "../../kernel/clock.ts";
import { LongJsonReader } from "../../kernel/long-json.ts";
import {
  type AnswerImages,
  type ImageSink,
  type ImagesJson,
  imagesJson,
  MAX_TEXT_BYTES,
} from "./answer-images.ts";
import { readJson } from "./answer-json.ts";
import { ambiguous } from "./classify.ts";
import type { UpstreamHttp } from "./http.ts";
import type { UpstreamRequest } from "./request-body.ts";

const NEWLINE = 0x0a;
/** An image has at most 64 MiB, 86 MiB as Base64. */
const MAX_LINE_BYTES = 90 * 1024 * 1024;
/** Of the images of a line so much is in memory: a job has many lines. */
const MOST_IN_MEMORY = 1024 * 1024;
/** A download that takes longer is begun anew: a file that never ends is broken. */
const MOST_MS = 6 * 3_600_000;
/** Broken connections in a row after which nothing came. */
const MOST_BREAKS = 3;
const AGAIN_MS = 1000;

/** A line of JSON, or why it is none. `endsEarly`: the file ended within it. */
type ResultLine = ImagesJson | { unreadable: string } | { endsEarly: string };

/**
 * Downloads a file and yields its lines as JSON. One line is in memory at a time: it is valid until the next. After a
 * broken connection, or an end within a line, it goes on where it was, with `Range` (RFC 9110, section 14) if the upstream
 * takes it. Rejects with `ProviderError` when it cannot be had now.
 */
export async function* resultLines(
  http: UpstreamHttp,
  request: Pick<UpstreamRequest, "path" | "headers">,
  clock: Clock,
  signal: AbortSignal,
): AsyncGenerator<ResultLine> {
  const line = new Line(() => http.beginImages(signal, MOST_IN_MEMORY));
  const endMs = clock.monotonicMs() + MOST_MS;
  let received = 0;
  try {
    for (let breaks = 0; ; ) {
      if (clock.monotonicMs() > endMs) throw ambiguous(http.name, "a file without an end");
      try {
        for await (const bytes of bytesFrom(http, request, received, signal)) {
          if (clock.monotonicMs() > endMs) break;
          received += bytes.length;
          breaks = 0;
          let from = 0;
          for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, from)) {
            await line.add(bytes.subarray(from, end));
            from = end + 1;
            const read = line.read();
            if (read) yield read;
            await line.clear();
          }
          await line.add(bytes.subarray(from));
        }
        if (clock.monotonicMs() > endMs) continue;
        const last = line.end();
        if (last && "endsEarly" in last && ++breaks <= MOST_BREAKS) {
          await clock.sleep(AGAIN_MS * 2 ** (breaks - 1), signal);
          continue;
        }
        if (last) yield last;
        return;
      } catch (error) {
        if (!(error instanceof ProviderError) || error.trouble !== "ambiguous" || ++breaks > MOST_BREAKS)
          throw error;
        await clock.sleep(AGAIN_MS * 2 ** (breaks - 1), signal);
      }
    }
  } finally {
    await line.clear();
  }
}

/** The bytes of a file behind the first `received`. */
async function* bytesFrom(
  http: UpstreamHttp,
  { path, headers }: Pick<UpstreamRequest, "path" | "headers">,
  received: number,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  const range = received > 0 ? { range: `bytes=${received}-` } : {};
  const answer = await http.open({ path, headers: { ...headers, ...range } }, signal).catch((error) => {
    // Nothing lies behind the bytes that have come.
    if (received > 0 && error instanceof ProviderError && error.upstreamStatus === 416) return null;
    throw error;
  });
  if (answer === null) return;
  const [, start, size] = /^bytes (\d+)-\d+\/(\d+)?/.exec(answer.headers.get("content-range") ?? "") ?? [];
  let position = answer.status === 206 ? Number(start ?? 0) : 0;
  const isBehind = position > received;
  for await (const bytes of answer.body) {
    if (isBehind) break;
    const known = Math.max(0, Math.min(bytes.length, received - position));
    position += bytes.length;
    if (known < bytes.length) yield bytes.subarray(known);
  }
  if (isBehind) throw ambiguous(http.name, "a part of a file behind the one asked for", 206);
  // An upstream may send less than it was asked for.
  if (answer.status === 206 && position < Number(size ?? 0))
    throw ambiguous(http.name, "a shorter part of a file than the one asked for", 206);
}

/** A line that comes in pieces. Nothing more is kept of one that is too long, or has too large an image. */
class Line {
  readonly #begin: () => AnswerImages;
  /** Null at the beginning of a line. */
  #content: { images: AnswerImages; reader: LongJsonReader<ImageSink> } | null = null;
  #bytes = 0;
  #problem: string | null = null;

  constructor(begin: () => AnswerImages) {
    this.#begin = begin;
  }

  /** Rejects with `StorageUnavailable` when the disk does not take an image. */
  async add(piece: Buffer): Promise<void> {
    if (piece.length === 0) return;
    this.#bytes += piece.length;
    if (this.#bytes > MAX_LINE_BYTES) this.#problem = "too long";
    if (this.#problem !== null) return this.#free();
    this.#content ??= this.#begun();
    const { images, reader } = this.#content;
    const before = reader.keptBytes;
    try {
      await reader.add(piece);
      if (reader.keptBytes > before) await images.take(reader.keptBytes - before);
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      this.#problem = `a line with ${error.message}`;
    }
    if (reader.keptBytes > MAX_TEXT_BYTES) this.#problem = "a line with too much text";
  }

  /** Returns the line so far, whose images are valid until `clear`. Null when it is empty. */
  read(): ResultLine | null {
    if (this.#bytes > MAX_LINE_BYTES) return { unreadable: `a line of ${this.#bytes} bytes` };
    if (this.#problem !== null) return { unreadable: this.#problem };
    if (this.#content === null) return null;
    const { images, reader } = this.#content;
    const { json } = reader;
    if (json.length < 100 && json.toString().trim() === "") return null;
    const value = readJson(json);
    if (value === undefined) return { unreadable: `a line of ${this.#bytes} bytes that is no JSON` };
    return imagesJson(value, reader, images);
  }

  /** Reads what stands behind the last line break. More of it can still be added. Null when it is empty. */
  end(): ResultLine | null {
    const read = this.read();
    return read && "unreadable" in read
      ? { endsEarly: `a file of results ends within ${read.unreadable}` }
      : read;
  }

  /** Begins the next line. */
  async clear(): Promise<void> {
    this.#bytes = 0;
    this.#problem = null;
    await this.#free();
  }

  #begun() {
    const images = this.#begin();
    return { images, reader: new LongJsonReader(() => images.open()) };
  }

  async #free(): Promise<void> {
    const { images } = this.#content ?? {};
    this.#content = null;
    await images?.discard();
  }
}
