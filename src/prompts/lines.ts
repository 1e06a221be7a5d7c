import { formatBytes } from "../kernel/text.ts";

/** A line of a prompt file. */
export interface Line {
  /** From 1. */
  number: number;
  /** Without its line feed; a carriage return before that is kept. Bytes that are not UTF-8 are replaced. */
  text: string;
  /** The number of bytes of the line in the file, without its line feed. */
  bytes: number;
  /** The problem of the whole line; null for none. */
  problem: string | null;
}

const LINE_FEED = 0x0a;
const BYTE_ORDER_MARK = "\ufeff";
const BAD_TEXT = "is not valid UTF-8; save the file as UTF-8";

/**
 * The lines of a file as its bytes arrive: UTF-8, with or without a byte order mark. No more than one line is held, and
 * of one that is longer than `maxBytes` not even that: its text is empty then.
 */
export async function* readLines(
  bytes: AsyncIterable<Uint8Array>,
  maxBytes: number,
): AsyncGenerator<Line, void, undefined> {
  let number = 1;
  let pieces: Uint8Array[] = [];
  let size = 0;
  const add = (piece: Uint8Array) => {
    size += piece.length;
    if (size > maxBytes) pieces = [];
    else pieces.push(piece);
  };
  const take = (): Line => {
    const line =
      size > maxBytes ? tooLong(number, size, maxBytes) : toLine(number, joined(pieces, size), number === 1);
    pieces = [];
    size = 0;
    number++;
    return line;
  };
  for await (const chunk of bytes) {
    let start = 0;
    for (let end = chunk.indexOf(LINE_FEED); end >= 0; end = chunk.indexOf(LINE_FEED, start)) {
      add(chunk.subarray(start, end));
      start = end + 1;
      const line = take();
      yield line;
      if (isOtherEncoding(line)) return;
    }
    if (start < chunk.length) add(chunk.subarray(start));
  }
  if (size > 0) yield take();
}

const STRICT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const LENIENT = new TextDecoder("utf-8", { ignoreBOM: true });

function toLine(number: number, data: Uint8Array, isFirst: boolean): Line {
  const bytes = data.length;
  if (isFirst && ((data[0] === 0xff && data[1] === 0xfe) || (data[0] === 0xfe && data[1] === 0xff)))
    return { number, text: "", bytes, problem: UTF_16 };
  const { text, problem } = decoded(data);
  const isMarked = isFirst && text.startsWith(BYTE_ORDER_MARK);
  return { number, text: isMarked ? text.slice(1) : text, bytes, problem };
}

function decoded(data: Uint8Array): Pick<Line, "text" | "problem"> {
  try {
    return { text: STRICT.decode(data), problem: null };
  } catch {
    return { text: LENIENT.decode(data), problem: BAD_TEXT };
  }
}

function joined(pieces: readonly Uint8Array[], size: number): Uint8Array {
  const [only] = pieces;
  if (only !== undefined && pieces.length === 1) return only;
  const whole = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

const UTF_16 = "the file is UTF-16; save it as UTF-8";

/** Nothing more can be said of such a file. */
function isOtherEncoding({ problem }: Line): boolean {
  return problem === UTF_16;
}

function tooLong(number: number, bytes: number, maxBytes: number): Line {
  return { number, text: "", bytes, problem: `is longer than ${formatBytes(maxBytes)}` };
}
