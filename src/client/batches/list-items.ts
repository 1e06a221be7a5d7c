import { FIXED_LIMITS } from "../../contract/limits.ts";
import { routes } from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import { readPages } from "../wire/paging.ts";
import { type BatchItem, readItem } from "../wire/read-items.ts";

/** More items than any batch has. */
const MOST_ITEMS = 100_000;

/**
 * Returns every item of a batch, in request order. Throws `BAD_RESPONSE` for a list without an end, and for one of more
 * than `most` items (default 100 000).
 */
export async function listItems(
  http: Http,
  id: string,
  signal?: AbortSignal,
  most = MOST_ITEMS,
): Promise<BatchItem[]> {
  const path = ({ limit, cursor }: { limit: number; cursor: string | null }) =>
    `${routes.items(id)}?limit=${limit}${cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`}`;
  const list = {
    entries: "items",
    path,
    pageSize: FIXED_LIMITS.itemPageMax,
    read: readItem,
    idOf: (item: BatchItem) => item.customId,
    most,
  };
  return (await readPages(http, list, signal)).entries;
}
