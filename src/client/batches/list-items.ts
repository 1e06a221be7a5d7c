import { type ErrorCode, ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { routes } from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import { readPages } from "../wire/paging.ts";
import { type BatchItem, readItem } from "../wire/read-items.ts";
import { getBatch } from "./get.ts";

/** More items than any batch has. */
const MOST_ITEMS = 100_000;
/** A service may list the items of a batch that it does not show. */
const UNTOLD: readonly ErrorCode[] = ["BAD_RESPONSE", "NOT_FOUND", "BATCH_IMAGE_NOT_FOUND"];

/**
 * Returns every item of a batch, in request order. Throws `BAD_RESPONSE` for a list without an end, and for one with more
 * than `most` items. Default: as many as the batch says, and 100 000 if it does not say.
 */
export async function listItems(
  http: Http,
  id: string,
  signal?: AbortSignal,
  most?: number,
): Promise<BatchItem[]> {
  const counted = async () => {
    const batch = await getBatch(http, id, { signal }).catch((error) => {
      if (error instanceof ImgbatchError && UNTOLD.includes(error.code)) return null;
      throw error;
    });
    const { itemCount = null, successCount = 0, failCount = 0 } = batch?.batch ?? {};
    return itemCount === null ? MOST_ITEMS : Math.max(itemCount, successCount + failCount);
  };
  const path = ({ limit, cursor }: { limit: number; cursor: string | null }) =>
    `${routes.items(id)}?limit=${limit}${cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`}`;
  const list = {
    entries: "items",
    path,
    pageSize: FIXED_LIMITS.itemPageMax,
    read: readItem,
    idOf: (item: BatchItem) => item.customId,
    most: most ?? counted,
  };
  return (await readPages(http, list, signal)).entries;
}
