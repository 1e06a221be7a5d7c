import { ImgbatchError } from "../contract/errors.ts";
import type { Http } from "../http/http.ts";
import { fieldsOf } from "../kernel/json/fields.ts";
import { numberToMicros } from "../kernel/money.ts";

interface Page {
  data: unknown[];
  /** Null when the service does not say. */
  hasMore: boolean | null;
  /** Null when the service names none: then the next page is asked for by offset. */
  nextCursor: string | null;
}

/** More entries than any honest page has. A page is read in one go. */
const MOST_ENTRIES_OF_A_PAGE = 100_000;

/** Null when the value is not a page of a list. */
export function readPage(value: unknown): Page | null {
  const list = fieldsOf(value);
  if (list === null || !Array.isArray(list.data) || list.data.length > MOST_ENTRIES_OF_A_PAGE) return null;
  const { data, has_more, next_cursor } = list;
  return {
    data,
    hasMore: typeof has_more === "boolean" ? has_more : null,
    nextCursor: textOf(next_cursor) || null,
  };
}

/** All pages of a list are in memory together. */
const MOST_BYTES_OF_A_LIST = 256 * 1024 * 1024;

/**
 * Returns a function that takes the next cursor and the size of each page of a list. It returns true when the list has
 * no end: a cursor was repeated, or all pages together are larger than any honest list.
 */
export function endlessness(): (cursor: string | null, pageBytes: number) => boolean {
  const seen = new Set<string>();
  let bytes = 0;
  return (cursor, pageBytes) => {
    bytes += pageBytes;
    if (bytes > MOST_BYTES_OF_A_LIST) return true;
    if (cursor === null) return false;
    const isKnown = seen.has(cursor);
    seen.add(cursor);
    return isKnown;
  };
}

/** A list of the batch API, and how to read it. */
interface PagedList<Entry> {
  /** Names the entries in errors: `items`. */
  entries: string;
  path(page: { limit: number; cursor: string | null }): string;
  /** The most entries that the service gives in one page. */
  pageSize: number;
  /** Null when the value is not an entry. */
  read(value: unknown): Entry | null;
  /** An entry that comes twice counts once. */
  idOf(entry: Entry): string;
  /** No honest list is longer. A function is called once, before the second page. */
  most: number | (() => Promise<number>);
  /** The number of wanted entries. Default: all. */
  wanted?: number | undefined;
}

interface FoundEntries<Entry> {
  entries: Entry[];
  /** Whether the list has more entries than were wanted. */
  hasMore: boolean;
}

/** After so many pages, an honest list has more than so many entries in each. */
const MANY_PAGES = 1000;
const FEWEST_OF_A_PAGE = 10;

/**
 * Reads a list in its own order, over as many pages as needed. Throws `BAD_RESPONSE` for a list without an end, for one
 * with more than `most` entries, and for an answer that is not such a list.
 */
export async function readPages<Entry>(
  http: Http,
  list: PagedList<Entry>,
  signal?: AbortSignal,
): Promise<FoundEntries<Entry>> {
  const { wanted = Number.POSITIVE_INFINITY } = list;
  const found = new Map<string, Entry>();
  const isEndless = endlessness();
  let cursor: string | null = null;
  let most = typeof list.most === "number" ? list.most : null;
  for (let pages = 1; ; pages++) {
    const before = found.size;
    const limit = Math.min(list.pageSize, wanted - before);
    const answer = await http.json({ method: "GET", path: list.path({ limit, cursor }), signal });
    const { requestId } = answer;
    const page = readPage(answer.json);
    if (page === null) throw unexpectedAnswer(`a list of ${list.entries}`, requestId);
    for (const value of page.data) {
      const entry = list.read(value);
      if (entry === null) throw unexpectedAnswer(`a list of ${list.entries}`, requestId);
      found.set(list.idOf(entry), entry);
    }
    if (most !== null && found.size > most) throw tooLong(http, list.entries, most, requestId);
    const isNew = found.size > before;
    // A service that does not report whether there is more is asked until it has nothing new.
    const hasMore = page.hasMore ?? (isNew && page.data.length >= limit);
    if (!hasMore || found.size >= wanted)
      return { entries: [...found.values()].slice(0, wanted), hasMore: hasMore || found.size > wanted };
    // After a page without anything new, the next one would be asked for without end.
    const isThin = pages >= MANY_PAGES && found.size < pages * FEWEST_OF_A_PAGE;
    if (!isNew || isThin || isEndless(page.nextCursor, answer.bytes))
      throw unexpectedAnswer(`a list of ${list.entries} whose pages end`, requestId);
    if (most === null && typeof list.most === "function") most = await list.most();
    if (most !== null && found.size > most) throw tooLong(http, list.entries, most, requestId);
    cursor = (page.nextCursor ?? String(found.size)).toWellFormed();
  }
}

function tooLong({ baseUrl }: Http, entries: string, most: number, requestId: string | undefined) {
  const message = `${baseUrl} lists more ${entries} than there are (${most}).`;
  return new ImgbatchError("BAD_RESPONSE", message, { requestId });
}

/** The error for an answer of 2xx that is not `what`, such as `a list of models`. */
export function unexpectedAnswer(what: string, requestId: string | undefined): ImgbatchError {
  return new ImgbatchError("BAD_RESPONSE", `The service's answer is not ${what}.`, { requestId });
}

/*
 * Reading of single fields of an answer. It is tolerant: a field that is missing, or holds something else, is null. These
 * readers are written by hand because loading a library of schemas takes longer than a short command may.
 */

/** The most dollars that count as an amount: as many as can be counted in micro-dollars. */
export const MOST_USD = 1_000_000_000;
const LAST_SECOND = 8_640_000_000_000;

export function textOf(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

/** A whole number from 0 up. */
export function countOf(value: unknown, most = Number.MAX_SAFE_INTEGER): number | null {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= most
    ? (value as number)
    : null;
}

/** An amount of dollars. */
export function usdOf(value: unknown, least = -MOST_USD): number | null {
  return typeof value === "number" && value >= least && value <= MOST_USD ? value : null;
}

/** The same in micro-dollars. */
export function microsOf(value: unknown, least = -MOST_USD): number | null {
  const usd = usdOf(value, least);
  return usd === null ? null : numberToMicros(usd);
}

/** A time in seconds since 1970, within the range of dates, in ms. */
export function momentMsOf(value: unknown): number | null {
  return typeof value === "number" && Math.abs(value) <= LAST_SECOND ? Math.round(value * 1000) : null;
}

/** A number that may be written as text. */
export function numeric(value: unknown): unknown {
  return typeof value === "string" && /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value;
}
