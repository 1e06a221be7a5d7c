import type { Request } from "express";
import type { OpenaiList } from "../../contract/openai-api.ts";
import { queryInteger } from "../query/query.ts";

/**
 * Returns how many entries a page has. A `limit` above the largest page means the largest page, and `has_more` shows
 * the rest. Throws `BATCH_IMAGE_INVALID_QUERY`.
 */
export function pageLimit(request: Request, usual: number, largest: number): number {
  return Math.min(queryInteger(request, "limit", { fallback: usual, min: 1, max: 10_000 }), largest);
}

/** A page of at most `limit` entries. One entry more in `found` means that another page follows. */
export function listPage<T extends { id: string }>(found: readonly T[], limit: number): OpenaiList<T> {
  const data = found.slice(0, limit);
  return {
    object: "list",
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: found.length > limit,
  };
}
