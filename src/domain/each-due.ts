import type { BlobStore } from "./ports/blob-store.ts";
import type { Stores } from "./ports/stores.ts";

/** The dependencies of a sweep of expired files. When `ending` aborts, the rest is left to the next sweep. Default: never. */
export interface SweepDeps {
  stores: Stores;
  blobs: BlobStore;
  ending?: AbortSignal;
}

/** How many rows are looked up at a time. */
const PAGE = 200;

/**
 * Yields the rows of all pages. Each page begins behind the last row of the one before, so a row is yielded once. Ends early
 * when `ending` aborts.
 */
export async function* eachDue<T extends { seq: number }>(
  page: (position: { afterSeq: number; limit: number }) => Promise<readonly T[]>,
  ending?: AbortSignal,
): AsyncGenerator<T> {
  for (let afterSeq = 0; ; ) {
    const found = await page({ afterSeq, limit: PAGE });
    for (const row of found) {
      if (ending?.aborted) return;
      yield row;
      afterSeq = row.seq;
    }
    if (found.length < PAGE) return;
  }
}
