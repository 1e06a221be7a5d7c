import type { Request, Response } from "express";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { ITEM_STATUSES } from "../../contract/statuses.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { pagingBy } from "../query/cursor.ts";
import { queryChoice, queryInteger } from "../query/query.ts";
import { itemView } from "./batch-view.ts";
import { findBatch } from "./find-batch.ts";

const paging = pagingBy("i", ["position"]);

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
    const { after, offset = 0 } = paging.start(request);
    const filter = status === undefined || status === "all" ? {} : { status };
    const start = { afterPosition: after?.position ?? -1, offset };
    const found = await deps.stores.read.items.page(batch.id, { ...filter, ...start, limit: limit + 1 });
    response.json(paging.page(found, limit, itemView));
  };
}
