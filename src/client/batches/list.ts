import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { routes } from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import { type Batch, readBatch } from "../wire/read-batch.ts";
import { endlessness, readPage } from "../wire/read-lists.ts";

/** Which batches of the key; what is left out does not narrow the list. Times as the service takes them. */
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
 * The batches of the key, newest first, at most `limit` (null: all of them), over as many pages as it takes. A
 * list that does not end is `BAD_RESPONSE`: nobody would know what is missing.
 */
export async function listBatches(
  http: Http,
  filter: BatchFilter,
  limit: number | null,
  signal?: AbortSignal,
): Promise<FoundBatches> {
  const batches = new Map<string, Batch>();
  const isEndless = endlessness();
  let cursor: string | null = null;
  for (;;) {
    const size = Math.min(FIXED_LIMITS.batchPageMax, (limit ?? Number.POSITIVE_INFINITY) - batches.size);
    const answer = await http.json({ method: "GET", path: pathOf(filter, size, cursor), signal });
    const page = readPage(answer.json);
    const found = page?.data.map(readBatch);
    if (page === null || found === undefined || found.includes(null))
      throw notThis("a list of batches", answer.requestId);
    const before = batches.size;
    for (const batch of found) if (batch !== null) batches.set(batch.id, batch);
    const isNew = batches.size > before;
    const hasMore = page.hasMore ?? (isNew && page.data.length >= size);
    if (!hasMore || batches.size >= (limit ?? Number.POSITIVE_INFINITY)) {
      return { batches: [...batches.values()].slice(0, limit ?? undefined), hasMore };
    }
    // A page without anything new would be asked for without end.
    if (!isNew || batches.size > MOST_BATCHES || isEndless(page.nextCursor, answer.bytes))
      throw notThis("a list of batches whose pages end", answer.requestId);
    cursor = page.nextCursor ?? String(batches.size);
  }
}

function pathOf(filter: BatchFilter, limit: number, cursor: string | null): string {
  const query = new URLSearchParams({ limit: String(limit) });
  for (const [name, value] of Object.entries(filter)) if (value !== undefined) query.set(name, value);
  if (cursor !== null) query.set("cursor", cursor);
  return `${routes.batches}?${query}`;
}

function notThis(what: string, requestId: string | undefined): ImgbatchError {
  return new ImgbatchError("BAD_RESPONSE", `The service's answer is not ${what}.`, { requestId });
}
