import { counted, formatBytes } from "../kernel/text.ts";

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
const CARRIAGE_RETURN = 0x0d;
const BYTE_ORDER_MARK = "\ufeff";
/** The problem of a line whose bytes are not UTF-8. */
export const BAD_TEXT = "is not valid UTF-8";

/**
 * The lines of a file as its bytes arrive: UTF-8, with or without a byte order mark. No more than one line is held, and
 * of one that is longer than `maxBytes` not even that: its text is empty then. In a file without line feeds, but a last
 * one, carriage returns end the lines, as old programs write them.
 */
export async function* readLines(
  source: AsyncIterable<Uint8Array>,
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
  const { lineEnd, bytes } = await findLineEnd(source, maxBytes);
  for await (const chunk of bytes) {
    let start = 0;
    for (let end = chunk.indexOf(lineEnd); end >= 0; end = chunk.indexOf(lineEnd, start)) {
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

/** Reads up to the first line feed that something follows. Without one within `maxBytes`, carriage returns end the lines. */
async function findLineEnd(
  source: AsyncIterable<Uint8Array>,
  maxBytes: number,
): Promise<{ lineEnd: number; bytes: AsyncIterable<Uint8Array> }> {
  const iterator = source[Symbol.asyncIterator]();
  const head: Uint8Array[] = [];
  let size = 0;
  let feed = -1;
  let carriage = -1;
  while (size <= maxBytes && (feed < 0 || feed === size - 1)) {
    const next = await iterator.next();
    if (next.done) break;
    const at = (byte: number) => next.value.indexOf(byte) + (next.value.includes(byte) ? size : 0);
    if (feed < 0) feed = at(LINE_FEED);
    if (carriage < 0) carriage = at(CARRIAGE_RETURN);
    head.push(next.value);
    size += next.value.length;
  }
  const hasFeeds = feed >= 0 && feed < size - 1;
  const isOfFeed = feed >= 0 && carriage === feed - 1;
  const lineEnd = !hasFeeds && carriage >= 0 && !isOfFeed ? CARRIAGE_RETURN : LINE_FEED;
  return { lineEnd, bytes: rejoined(head, iterator) };
}

/** What was read ahead of a source, and then the rest of it. The end of its reading ends that of the source. */
async function* rejoined<T>(
  head: readonly T[],
  iterator: AsyncIterator<T>,
): AsyncGenerator<T, void, undefined> {
  try {
    yield* head;
    for (let next = await iterator.next(); !next.done; next = await iterator.next()) yield next.value;
  } finally {
    await iterator.return?.();
  }
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

/** How files of other programs begin, as Latin-1, and what else their first bytes hold. */
const KINDS: readonly { heads: readonly string[]; holds?: RegExp; problem: string }[] = [
  { heads: ["\x89PNG"], problem: "is a PNG image, not a prompt file" },
  { heads: ["\xff\xd8\xff"], problem: "is a JPEG image, not a prompt file" },
  { heads: ["RIFF"], holds: /WEBP/, problem: "is a WebP image, not a prompt file" },
  { heads: ["GIF8"], problem: "is a GIF image, not a prompt file" },
  { heads: ["%PDF"], problem: "is a PDF document, not a prompt file" },
  {
    heads: ["PK\x03\x04", "\xd0\xcf\x11\xe0"],
    holds: /Content_Types|_rels\/|xl\/|word\/|opendocument|^\xd0/,
    problem: "is a file of an office program, not a prompt file; save the sheet as CSV (UTF-8)",
  },
  {
    heads: ["PAR1", "ARROW1", "SQLite format 3"],
    problem: "is a file of a database or a data frame, not a prompt file; export it as CSV or JSON lines",
  },
  { heads: ["PK\x03\x04"], problem: "is a ZIP archive, not a prompt file; unpack it first" },
  {
    heads: ["\x1f\x8b", "BZh", "\xfd7zXZ", "\x28\xb5\x2f\xfd", "7z\xbc\xaf"],
    problem: "is a compressed file, not a prompt file; unpack it first",
  },
];
const HEAD_BYTES = 4096;

/**
 * Returns the bytes of a prompt file, and what is wrong with the file as a whole, by its first bytes: it is not text, or
 * text that no line can be read of. Null for a file that may be text in UTF-8.
 */
export async function inspectFile(
  source: AsyncIterable<Uint8Array>,
): Promise<{ problem: string | null; bytes: AsyncIterable<Uint8Array> }> {
  const iterator = source[Symbol.asyncIterator]();
  const chunks: Uint8Array[] = [];
  let size = 0;
  while (size < HEAD_BYTES) {
    const next = await iterator.next();
    if (next.done) break;
    chunks.push(next.value);
    size += next.value.length;
  }
  const problem = problemOfHead(joined(chunks, size).subarray(0, HEAD_BYTES));
  if (problem !== null) await iterator.return?.();
  return { problem, bytes: rejoined(chunks, iterator) };
}

function problemOfHead(head: Uint8Array): string | null {
  if (isUnmarkedUtf16(head)) return UTF_16;
  const isText = isUtf8(head);
  const hasNul = head.includes(0);
  const text = Array.from(head, (byte) => String.fromCharCode(byte)).join("");
  // A marked file in UTF-16 has a message of its own, with its line.
  if ((isText && !hasNul) || text.startsWith("\xff\xfe") || text.startsWith("\xfe\xff")) return null;
  const kind = KINDS.find(
    ({ heads, holds }) => heads.some((start) => text.startsWith(start)) && (holds?.test(text) ?? true),
  );
  if (kind !== undefined) return kind.problem;
  // NULs alone may be a mistake in a text, which their lines tell.
  const controls = head.filter((byte) => byte < 0x09 || (byte > 0x0d && byte < 0x20)).length;
  return hasNul && !isText && controls > head.length / 20 ? "is not a text file" : null;
}

/** Text in UTF-16 without a byte order mark: every other byte of its ASCII characters is 0. */
function isUnmarkedUtf16(head: Uint8Array): boolean {
  const start = [...head.subarray(0, 8)];
  const isAscii = (byte: number) => byte > 0 && byte < 0x80;
  return (
    start.length === 8 &&
    [0, 1].some((odd) => start.every((byte, i) => (i % 2 === odd ? byte === 0 : isAscii(byte))))
  );
}

/** The last character may be cut. */
function isUtf8(head: Uint8Array): boolean {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(head, { stream: true });
    return true;
  } catch {
    return false;
  }
}

/** Nothing more can be said of such a file. */
function isOtherEncoding({ problem }: Line): boolean {
  return problem === UTF_16;
}

function tooLong(number: number, bytes: number, maxBytes: number): Line {
  return { number, text: "", bytes, problem: `is longer than ${formatBytes(maxBytes)}` };
}

/** A line of a prompt file before its fields are checked. */
export interface Row {
  /** The number of its first line, from 1. */
  line: number;
  fields: Record<string, unknown>;
  /** The texts that stand for `{{name}}`: all cells of a table, all texts and numbers of a JSON line. */
  columns?: Record<string, string>;
}

/** What the reader of a table has to know of its columns. */
export interface ColumnRules {
  /** Whether a row may have a field. */
  isTaken: (name: string) => boolean;
  /** The column or field that holds the prompts. Default: `prompt`. */
  promptColumn?: string | undefined;
  /** The column or field that holds the ids. Default: `custom_id`. */
  idColumn?: string | undefined;
  /** The prompt of all rows. A table needs no prompts of its own then. */
  template?: string | undefined;
}

export type ReportLine = (line: number | null, field: string | null, message: string) => void;

/**
 * Makes rows of the lines of a prompt file as they come. A line that is not a row is reported, never thrown. A row may
 * span several lines, so lines with a problem are passed on too; their problem is not reported again.
 */
export type ReadRows = (
  lines: AsyncIterable<Line>,
  report: ReportLine,
  columns: ColumnRules,
  note: (remark: string) => void,
) => AsyncIterable<Row>;

const MOST_NAMED_LINES = 3;

/** Counts what stands in some lines, and names the first of them: `2 rows (lines 4, 5)`. */
export function countedLines(noun: string, lines: readonly number[]): string {
  const named = lines.slice(0, MOST_NAMED_LINES).join(", ");
  const more = lines.length > MOST_NAMED_LINES ? ", …" : "";
  return `${counted(lines.length, noun)} (${lines.length === 1 ? "line" : "lines"} ${named}${more})`;
}

/** Whether nothing of a text can be seen: it has only blanks of any width, and characters that no font draws. */
export function isBlank(text: string): boolean {
  return /^[\s\p{Default_Ignorable_Code_Point}\u2800]*$/u.test(text);
}

/** Whether a text names nothing: it has no letter, digit, symbol or picture of a character set, such as `---` and `|…|`. */
export function isWordless(text: string): boolean {
  return !/[\p{L}\p{N}\p{Sc}]|(?![\u2500-\u259f])\p{So}/u.test(text);
}

/** What spreadsheets and programs for data write for a value that could not be made, or that is not there. */
const NO_VALUE =
  /^(?:#(?:NAME\?|N\/A|REF!|VALUE!|DIV\/0!|NUM!|NULL!|SPILL!|CALC!|ERROR!)|nan|NaN|<NA>|null|NULL|undefined|N\/A|n\/a|\\N|\[object Object\])$/;

/** Whether a text stands for no value. */
export function isNoValue(text: string): boolean {
  return NO_VALUE.test(text.trim());
}

/** The formats of prompts; also the endings of their files. */
export const FORMAT_NAMES = ["jsonl", "txt", "csv", "tsv"] as const;
export type FormatName = (typeof FORMAT_NAMES)[number];
