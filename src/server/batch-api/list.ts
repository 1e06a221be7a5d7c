import type { Request, Response } from "express";
import type { BatchObject } from "../../contract/batch-api/batches.ts";
import type { ListEnvelope } from "../../contract/batch-api/items.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { BATCH_STATUSES } from "../../contract/statuses.ts";
import type { BatchPage } from "../../domain/ports/stores.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { batchView } from "./batch-view.ts";
import { invalidQuery, queryChoice, queryInteger, queryText } from "./query.ts";
import { readInstant } from "./query-instant.ts";

/** `GET /v1/images/batches`: the batches of the key, newest first, a page at a time. */
export function list(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { key } = callerOf(response);
    const { batchPageDefault, batchPageMax } = FIXED_LIMITS;
    const limit = queryInteger(request, "limit", { fallback: batchPageDefault, min: 1, max: batchPageMax });
    const filter = { ...readFilter(request), ...readCursor(queryText(request, "cursor")) };
    const found = await deps.stores.read.batches.page({ apiKeyId: key.id, ...filter, limit: limit + 1 });
    const page = found.slice(0, limit);
    const last = page.at(-1);
    const hasMore = found.length > limit;
    const envelope: ListEnvelope<BatchObject> = {
      object: "list",
      data: page.map(batchView),
      has_more: hasMore,
      next_cursor: hasMore && last ? writeCursor(last) : null,
    };
    response.json(envelope);
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

/** A cursor is opaque to callers; a plain number, which some send, is taken as an offset. */
function readCursor(text: string | undefined): Pick<BatchPage, "after" | "offset"> {
  if (text === undefined) return {};
  if (/^\d{1,9}$/.test(text)) return { offset: Number(text) };
  const match = /^b(\d{1,16})\.(\d{1,16})$/.exec(Buffer.from(text, "base64url").toString());
  if (!match) throw invalidQuery("cursor", "must be a next_cursor of this list or an offset");
  return { after: { createdAtMs: Number(match[1]), seq: Number(match[2]) } };
}

function writeCursor({ createdAtMs, seq }: { createdAtMs: number; seq: number }): string {
  return Buffer.from(`b${createdAtMs}.${seq}`).toString("base64url");
}
