import { FIXED_LIMITS } from "../../contract/limits.ts";
import { routes } from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import { type BatchItem, endlessness, readItem, readPage } from "../wire/read-lists.ts";
import { unexpectedAnswer } from "../wire/unexpected-answer.ts";

/** More items than any batch has. */
const MOST_ITEMS = 100_000;

/**
 * Every item of a batch, in request order, over as many pages as it takes. Throws `BAD_RESPONSE` for a list without an
 * end, and for one of more than `most` items (default 100 000).
 */
export async function listItems(
  http: Http,
  id: string,
  signal?: AbortSignal,
  most = MOST_ITEMS,
): Promise<BatchItem[]> {
  const items = new Map<string, BatchItem>();
  const isEndless = endlessness();
  let cursor = "";
  for (;;) {
    const before = items.size;
    const path = `${routes.items(id)}?limit=${FIXED_LIMITS.itemPageMax}${cursor}`;
    const answer = await http.json({ method: "GET", path, signal });
    const page = readPage(answer.json);
    if (page === null) throw unexpectedAnswer("a list of items", answer);
    for (const value of page.data) {
      const item = readItem(value);
      if (item === null) throw unexpectedAnswer("a list of items", answer);
      items.set(item.customId, item);
    }
    if (items.size > most)
      throw unexpectedAnswer(`a list of at most ${most} items, which ${id} can have`, answer);
    const isNew = items.size > before;
    // A service that does not say whether there is more is asked until it has nothing new.
    const hasMore = page.hasMore ?? (isNew && page.data.length >= FIXED_LIMITS.itemPageMax);
    if (!hasMore) return [...items.values()];
    // A page without anything new would be asked for without end.
    if (!isNew || isEndless(page.nextCursor, answer.bytes))
      throw unexpectedAnswer("a list whose pages end", answer);
    cursor = `&cursor=${encodeURIComponent((page.nextCursor ?? String(items.size)).toWellFormed())}`;
  }
}
