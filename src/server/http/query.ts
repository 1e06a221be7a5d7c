import type { Request } from "express";
import type { ListEnvelope } from "../../contract/batch-api.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { invalidArgument } from "./errors.ts";

/** A query parameter; undefined when it is absent or empty. Throws `BATCH_IMAGE_INVALID_QUERY` when repeated. */
export function queryText(request: Request, name: string): string | undefined {
  const value = request.query[name];
  if (value === undefined || value === "") return undefined;
  if (typeof value !== "string") throw invalidQuery(name, "may be given once");
  return value;
}

export function queryInteger(
  request: Request,
  name: string,
  range: { fallback: number; min: number; max: number },
): number {
  const text = queryText(request, name);
  if (text === undefined) return range.fallback;
  const value = Number(text);
  if (!/^-?\d+$/.test(text) || value < range.min || value > range.max) {
    throw invalidQuery(name, `must be an integer from ${range.min} to ${range.max}`);
  }
  return value;
}

export function queryChoice<T extends string>(
  request: Request,
  name: string,
  choices: readonly T[],
): T | undefined {
  const text = queryText(request, name);
  if (text === undefined) return undefined;
  const choice = choices.find((c) => c === text);
  if (choice === undefined) throw invalidQuery(name, `must be one of ${choices.join(", ")}`);
  return choice;
}

export function invalidQuery(name: string, problem: string): ImgbatchError {
  return new ImgbatchError("BATCH_IMAGE_INVALID_QUERY", `${name}: ${problem}`, { param: name });
}

const RFC_3339 = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})$/;
const DAY = /^\d{4}-\d{2}-\d{2}$/;
const UNIX_SECONDS = /^\d{1,11}$/;
const DAY_SECONDS = 86_400;

/** The span of a time in a query, in whole seconds since 1970: one second, or a day of UTC. */
interface QueryInstant {
  firstSecond: number;
  lastSecond: number;
}

/** A query parameter as a time: RFC 3339, `YYYY-MM-DD` or Unix seconds. Undefined when absent. */
export function readInstant(request: Request, name: string): QueryInstant | undefined {
  // A plus that was not encoded arrives as a space; in a time it can only have been a plus.
  const text = queryText(request, name)?.replace(/ (?=\d{2}:\d{2}$)/, "+");
  if (text === undefined) return undefined;
  if (UNIX_SECONDS.test(text)) return second(Number(text));
  if (DAY.test(text) && isRealDay(text)) {
    const firstSecond = Date.parse(`${text}T00:00:00Z`) / 1000;
    return { firstSecond, lastSecond: firstSecond + DAY_SECONDS - 1 };
  }
  if (RFC_3339.test(text) && isRealDay(text.slice(0, 10))) {
    const ms = Date.parse(text.replace(" ", "T").toUpperCase());
    if (!Number.isNaN(ms)) return second(Math.floor(ms / 1000));
  }
  throw invalidQuery(name, "must be an RFC 3339 time, a day such as 2030-01-31, or Unix seconds");
}

function second(value: number): QueryInstant {
  return { firstSecond: value, lastSecond: value };
}

/** `Date` reads February 30 as a day of March; here it is an error. */
function isRealDay(day: string): boolean {
  const ms = Date.parse(`${day}T00:00:00Z`);
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(day);
}

/** The database reads all rows up to an offset, so a larger one would take long. */
const MOST_OFFSET = 10_000;

/** The paging of one list, whose rows are sorted by the fields `Key`. */
interface Paging<Key extends string> {
  /**
   * The start of the page that the query asks for: behind a row, or at an offset; neither for the first page. Throws
   * `BATCH_IMAGE_INVALID_QUERY`.
   */
  start(request: Request): { after?: Record<Key, number>; offset?: number };
  /** A page of at most `limit` rows. One row more in `found` means that another page follows. */
  page<Row extends Record<Key, number>, View>(
    found: readonly Row[],
    limit: number,
    view: (row: Row) => View,
  ): ListEnvelope<View>;
}

/**
 * Paging by a query parameter: `cursor` by default. A cursor is opaque to clients: the letter of its list and the fields that a row
 * is sorted by. A plain number, which some clients send, is an offset of at most 10,000.
 */
export function pagingBy<Key extends string>(
  letter: string,
  keys: readonly Key[],
  parameter = "cursor",
): Paging<Key> {
  const nextName = parameter === "cursor" ? "next_cursor" : "nextPageToken";
  const pattern = new RegExp(`^${letter}${keys.map(() => "(\\d{1,16})").join("\\.")}$`);
  return {
    start(request) {
      const text = queryText(request, parameter);
      if (text === undefined) return {};
      if (/^\d+$/.test(text)) {
        const offset = Number(text);
        if (offset <= MOST_OFFSET) return { offset };
        const rule = `must be an offset of at most ${MOST_OFFSET}; further on, send \`${nextName}\` of the page before`;
        throw invalidQuery(parameter, rule);
      }
      const numbers = pattern.exec(Buffer.from(text, "base64url").toString())?.slice(1).map(Number);
      if (!numbers) throw invalidQuery(parameter, "must be one that this list gave, or an offset");
      const after = Object.fromEntries(keys.map((key, index) => [key, numbers[index]]));
      return { after: after as Record<Key, number> };
    },
    page(found, limit, view) {
      const rows = found.slice(0, limit);
      const last = rows.at(-1);
      const hasMore = found.length > limit;
      const cursor = last && letter + keys.map((key) => last[key]).join(".");
      return {
        object: "list",
        data: rows.map(view),
        has_more: hasMore,
        next_cursor: hasMore && cursor ? Buffer.from(cursor).toString("base64url") : null,
      };
    },
  };
}

/** Size 0 means the default; a size above the maximum means the maximum. Throws `REALTIME_INVALID_ARGUMENT`. */
export function pageSizeOf(request: Request, defaultSize: number, max: number): number {
  return Math.min(wholeNumber(request, "pageSize", "page_size") || defaultSize, max);
}

/** A parameter of a list in either spelling; 0 when it is missing. Throws `REALTIME_INVALID_ARGUMENT`. */
export function wholeNumber(request: Request, name: string, otherName: string): number {
  const text = request.query[name] ?? request.query[otherName];
  if (text === undefined || text === "") return 0;
  if (typeof text !== "string" || !/^\d{1,9}$/.test(text))
    throw invalidArgument(name, "must be one whole number");
  return Number(text);
}

/**
 * Returns how many entries a page has. A `limit` above the largest page means the largest page, and `has_more` shows
 * the rest. Throws `BATCH_IMAGE_INVALID_QUERY`.
 */
export function pageLimit(request: Request, usual: number, largest: number): number {
  return Math.min(queryInteger(request, "limit", { fallback: usual, min: 1, max: 10_000 }), largest);
}

/** The body of a list: a page of views, and whether more were found. */
export function listBody(views: readonly object[], found: readonly unknown[]) {
  const data = views as readonly { id: string }[];
  return {
    object: "list",
    data: [...data],
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: found.length > data.length,
  };
}
