import { ProviderError } from "../../../domain/ports/image-provider.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { jsonExcess } from "../../../kernel/json/json-shape.ts";
import type { LongJson } from "../../../kernel/json/long-json.ts";
import { countPassedOn } from "../../../kernel/memory/garbage.ts";
import { ambiguous } from "../classify.ts";
import type { UpstreamHttp, UpstreamRequest } from "../http.ts";
import { LineMemory, MAX_LINE_BYTES } from "./line-memory.ts";

const BOUNDS = { maxDepth: 64, maxElements: 200_000 };
const NEWLINE = 0x0a;
/** A download that takes longer is begun anew: a file that never ends is broken. */
const MOST_MS = 6 * 3_600_000;
/** Broken connections in a row after which nothing came. */
const MOST_BREAKS = 3;
const AGAIN_MS = 1000;

/** A line of JSON, or why it is none. `endsEarly`: the file ended within it. */
export type ResultLine = LongJson | { unreadable: string } | { endsEarly: string };

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
  const line = new Line();
  const endMs = clock.monotonicMs() + MOST_MS;
  let received = 0;
  for (let breaks = 0; ; ) {
    if (clock.monotonicMs() > endMs) throw ambiguous(http.name, "a file without an end");
    try {
      for await (const bytes of bytesFrom(http, request, received, signal)) {
        if (clock.monotonicMs() > endMs) break;
        received += bytes.length;
        countPassedOn(bytes.length);
        breaks = 0;
        let from = 0;
        for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, from)) {
          line.add(bytes.subarray(from, end));
          from = end + 1;
          const read = line.take();
          if (read) yield read;
        }
        line.add(bytes.subarray(from));
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

/** Appends to a line. Nothing is kept of one that is too long. */
class Line {
  readonly #memory = new LineMemory();
  #bytes = 0;

  add(piece: Buffer): void {
    this.#bytes += piece.length;
    if (this.#bytes <= MAX_LINE_BYTES) this.#memory.add(piece);
  }

  /** Ends the line. Null when it is empty. */
  take(): ResultLine | null {
    const read = this.#read();
    this.#memory.clear();
    this.#bytes = 0;
    return read;
  }

  /** Reads what stands behind the last line break. More of it can still be added. Null when it is empty. */
  end(): ResultLine | null {
    const read = this.#read();
    return read && "unreadable" in read
      ? { endsEarly: `a file of results ends within ${read.unreadable}` }
      : read;
  }

  #read(): ResultLine | null {
    const { bytes } = this.#memory;
    if (this.#bytes > MAX_LINE_BYTES) return { unreadable: `a line of ${this.#bytes} bytes` };
    if (bytes.length < 100 && bytes.toString().trim() === "") return null;
    if (jsonExcess(bytes, BOUNDS) !== null)
      return { unreadable: "a line whose JSON is too deep or too long" };
    try {
      return this.#memory.parse();
    } catch {
      return { unreadable: `a line of ${bytes.length} bytes that is no JSON` };
    }
  }
}
