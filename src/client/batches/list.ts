import { FIXED_LIMITS } from "../../contract/limits.ts";
import { routes } from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import { readPages } from "../wire/paging.ts";
import { type Batch, readBatch } from "../wire/read-batch.ts";

/** Selects batches of the key. A field that is absent selects all. Times are written as the service takes them. */
export interface BatchFilter {
  status?: string | undefined;
  task_name?: string | undefined;
  downloaded?: "true" | "false" | undefined;
  from?: string | undefined;
  to?: string | undefined;
}

export interface FoundBatches {
  batches: Batch[];
  /** Whether there are more than were asked for. */
  hasMore: boolean;
}

/** More batches than any key has. */
const MOST_BATCHES = 1_000_000;

/**
 * Returns the batches of the key, newest first: at most `limit`, or all of them when it is null. Throws `BAD_RESPONSE`
 * for a list without an end, since its missing part is not known.
 */
export async function listBatches(
  http: Http,
  filter: BatchFilter,
  limit: number | null,
  signal?: AbortSignal,
): Promise<FoundBatches> {
  const list = {
    entries: "batches",
    path: (page: { limit: number; cursor: string | null }) => pathOf(filter, page),
    pageSize: FIXED_LIMITS.batchPageMax,
    read: readBatch,
    idOf: (batch: Batch) => batch.id,
    most: MOST_BATCHES,
    wanted: limit ?? undefined,
  };
  const { entries, hasMore } = await readPages(http, list, signal);
  return { batches: entries, hasMore };
}

function pathOf(filter: BatchFilter, { limit, cursor }: { limit: number; cursor: string | null }): string {
  const query = new URLSearchParams({ limit: String(limit) });
  for (const [name, value] of Object.entries(filter)) if (value !== undefined) query.set(name, value);
  if (cursor !== null) query.set("cursor", cursor);
  return `${routes.batches}?${query}`;
}
