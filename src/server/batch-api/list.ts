import type { Request, Response } from "express";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { BATCH_STATUSES } from "../../contract/statuses.ts";
import type { BatchPage } from "../../domain/ports/batch-repository.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { pagingBy } from "../query/cursor.ts";
import { invalidQuery, queryChoice, queryInteger, queryText } from "../query/query.ts";
import { readInstant } from "../query/query-instant.ts";
import { showBatch } from "./batch-view.ts";

const paging = pagingBy("b", ["createdAtMs", "seq"]);

/** `GET /v1/images/batches`: the batches of the key, newest first, a page at a time. */
export function list(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { key } = callerOf(response);
    const { batchPageDefault, batchPageMax } = FIXED_LIMITS;
    const limit = queryInteger(request, "limit", { fallback: batchPageDefault, min: 1, max: batchPageMax });
    const filter = { ...readFilter(request), ...paging.start(request) };
    const found = await deps.stores.read.batches.page({ apiKeyId: key.id, ...filter, limit: limit + 1 });
    const page = paging.page(found, limit, (batch) => batch);
    response.json({ ...page, data: await Promise.all(page.data.map((batch) => showBatch(deps, batch))) });
  };
}

function readFilter(request: Request): Partial<BatchPage> {
  const status = queryChoice(request, "status", ["all", ...BATCH_STATUSES]);
  const taskName = queryText(request, "task_name");
  const downloaded = queryChoice(request, "downloaded", ["true", "false"]);
  const from = readInstant(request, "from");
  const to = readInstant(request, "to");
  if (from && to && from.firstSecond > to.lastSecond) throw invalidQuery("from", "must not be after `to`");
  return {
    ...(status === undefined || status === "all" ? {} : { status }),
    ...(taskName === undefined ? {} : { taskName }),
    ...(downloaded === undefined ? {} : { isDownloaded: downloaded === "true" }),
    ...(from ? { fromMs: from.firstSecond * 1000 } : {}),
    ...(to ? { beforeMs: (to.lastSecond + 1) * 1000 } : {}),
  };
}
