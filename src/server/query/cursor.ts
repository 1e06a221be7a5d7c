import type { Request } from "express";
import type { ListEnvelope } from "../../contract/batch-api.ts";
import { invalidQuery, queryText } from "./query.ts";

/** The database reads all rows up to an offset, so a larger one would take long. */
const MOST_OFFSET = 10_000;

/** The paging of one list, whose rows are sorted by the fields `Key`. */
export interface Paging<Key extends string> {
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
