import type { Request, Response } from "express";
import type { ItemObject, ListEnvelope } from "../../contract/batch-api/items.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { ITEM_STATUSES } from "../../contract/statuses.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { itemView } from "./batch-view.ts";
import { findBatch } from "./find-batch.ts";
import { invalidQuery, queryChoice, queryInteger, queryText } from "./query.ts";

/** `GET …/{id}/items`: the items in request order, a page at a time. */
export function items(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const batch = await findBatch(deps.stores, callerOf(response), request.params.id);
    const status = queryChoice(request, "status", ["all", ...ITEM_STATUSES]);
    const limit = queryInteger(request, "limit", {
      fallback: FIXED_LIMITS.itemPageDefault,
      min: 1,
      max: FIXED_LIMITS.itemPageMax,
    });
    const from = readCursor(queryText(request, "cursor"));
    const filter = status === undefined || status === "all" ? {} : { status };
    const found = await deps.stores.read.items.page(batch.id, { ...filter, ...from, limit: limit + 1 });
    const page = found.slice(0, limit);
    const last = page.at(-1);
    const hasMore = found.length > limit;
    const envelope: ListEnvelope<ItemObject> = {
      object: "list",
      data: page.map(itemView),
      has_more: hasMore,
      next_cursor: hasMore && last ? writeCursor(last.position) : null,
    };
    response.json(envelope);
  };
}

/** A cursor is opaque to callers; a plain number, which some send, is taken as an offset. */
function readCursor(text: string | undefined): { afterPosition: number; offset: number } {
  if (text === undefined) return { afterPosition: -1, offset: 0 };
  if (/^\d{1,9}$/.test(text)) return { afterPosition: -1, offset: Number(text) };
  const position = /^i(\d{1,9})$/.exec(Buffer.from(text, "base64url").toString())?.[1];
  if (position === undefined) throw invalidQuery("cursor", "must be a next_cursor of this list or an offset");
  return { afterPosition: Number(position), offset: 0 };
}

function writeCursor(position: number): string {
  return Buffer.from(`i${position}`).toString("base64url");
}
