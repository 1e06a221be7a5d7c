import type { Request, Response } from "express";
import { ITEM_EXTRAS, type ItemExtra, type ListEnvelope } from "../../contract/batch-api.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { PATHS } from "../../contract/routes.ts";
import { ITEM_STATUSES, type ItemStatus } from "../../contract/statuses.ts";
import type { ListedItem } from "../../domain/ports/batches.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { groupBy } from "../../kernel/json.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf, requireBatchGroup } from "../http/authenticate.ts";
import { invalidQuery, pagingBy, queryChoice, queryInteger, queryText } from "../http/query.ts";
import type { Operation } from "../operation.ts";
import { findBatch, type ItemDetails, itemView } from "./batch-view.ts";

const paging = pagingBy("i", ["position"]);

/** `GET …/{id}/items`: the items in request order, a page at a time. */
function items(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const batch = await findBatch(deps.stores, callerOf(response), request.params.id);
    const status = queryChoice(request, "status", ["all", ...ITEM_STATUSES]);
    const { itemPageDefault: fallback, itemPageMax: max } = FIXED_LIMITS;
    const filter = status === undefined || status === "all" ? {} : { status };
    const { items, pageOf } = await readItems(deps, request, batch, { fallback, max, ...filter });
    const detailsOf = await readDetails(deps, batch, items, readExtras(request));
    const isOwner = deps.isOwnerKey(batch.apiKeyId);
    response.json(pageOf((item) => itemView(batch, item, detailsOf(item), isOwner)));
  };
}

/**
 * Reads the page of items that `limit` and `cursor` of a query ask for. `pageOf` makes the answer of it. Throws
 * `BATCH_IMAGE_INVALID_QUERY`.
 */
export async function readItems(
  { stores }: Pick<ApiDeps, "stores">,
  request: Request,
  batch: BatchRecord,
  { fallback, max, ...filter }: { fallback: number; max: number; status?: ItemStatus },
): Promise<{ items: ListedItem[]; pageOf: <View>(view: (item: ListedItem) => View) => ListEnvelope<View> }> {
  const limit = queryInteger(request, "limit", { fallback, min: 1, max });
  const { after, offset = 0 } = paging.start(request);
  const start = { afterPosition: after?.position ?? -1, offset };
  const found = await stores.read.items.listed(batch.id, { ...filter, ...start, limit: limit + 1 });
  return { items: found.slice(0, limit), pageOf: (view) => paging.page(found, limit, view) };
}

function readExtras(request: Request): ReadonlySet<ItemExtra> {
  const words = queryText(request, "include")?.split(",") ?? [];
  return new Set(
    words.map((word) => {
      const extra = ITEM_EXTRAS.find((known) => known === word);
      if (extra === undefined) throw invalidQuery("include", `must be a list of ${ITEM_EXTRAS.join(", ")}`);
      return extra;
    }),
  );
}

/** Reads what is wanted of all items at once. Returns a function that finds the details of one. */
async function readDetails(
  { stores }: Pick<ApiDeps, "stores">,
  batch: BatchRecord,
  items: readonly ListedItem[],
  wanted: ReadonlySet<ItemExtra>,
): Promise<(item: ListedItem) => ItemDetails> {
  const sources = [...new Set(items.map(({ sourceIndex }) => sourceIndex))];
  const references = wanted.has("references")
    ? await stores.read.references.ofSources(batch.id, sources)
    : [];
  const outputs = wanted.has("images") ? await stores.read.outputs.ofItems(items.map(({ id }) => id)) : [];
  const failed = items.filter(({ status }) => status === "failed").map(({ customId }) => customId);
  const retries = wanted.has("retries") ? await stores.read.items.retriesOf(batch, failed) : null;
  const referencesOf = groupBy(references, ({ sourceIndex }) => sourceIndex);
  const outputsOf = groupBy(outputs, ({ itemId }) => itemId);
  return ({ id, customId, prompt, sourceIndex }) => ({
    ...(wanted.has("prompt") && { prompt }),
    ...(wanted.has("references") && { references: referencesOf.get(sourceIndex) ?? [] }),
    ...(wanted.has("images") && { outputs: outputsOf.get(id) ?? [] }),
    ...(retries && { retriedIn: retries.get(customId) ?? null }),
  });
}

export const listItems: Operation = {
  id: "listItems",
  method: "get",
  path: PATHS.items,
  summary: "Items of a batch, in request order",
  parameters: ["BatchId", "ItemStatus", "Include", "ItemLimit", "Cursor"],
  answers: { 200: { description: "A page of items.", schema: "ItemList" } },
  errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_INVALID_QUERY"],
  guards: [requireBatchGroup],
  handler: items,
};
