import type { Request } from "express";
import {
  BILLED_NOTE,
  type ItemExtra,
  type ItemObject,
  type ListEnvelope,
  PAID_TWICE_NOTE,
} from "../../contract/batch-api.ts";
import { IMAGE_EXTENSIONS } from "../../contract/image-formats.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { PATHS } from "../../contract/routes.ts";
import type { ItemError, ItemStatus } from "../../contract/statuses.ts";
import { withUpstreamWords } from "../../contract/waiting.ts";
import { askedOptions } from "../../domain/checked-content.ts";
import type { ListedItem } from "../../domain/ports/stores.ts";
import type { BatchRecord, OutputRecord, ReferenceRecord } from "../../domain/records.ts";
import { groupBy } from "../../kernel/json.ts";
import { microsToNumber } from "../../kernel/money.ts";
import { truncateCodePoints } from "../../kernel/text.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../http/authenticate.ts";
import { pagingBy, readQuery } from "../http/parameters.ts";
import type { Operation } from "../operation.ts";
import { findBatch } from "./batch-view.ts";

const paging = pagingBy("i", ["position"]);

/**
 * Reads the page of at most `limit` items that `cursor` of a query asks for. `pageOf` makes the answer of it. Throws
 * `BATCH_IMAGE_INVALID_QUERY`.
 */
export async function readItems(
  { stores }: Pick<ApiDeps, "stores">,
  request: Request,
  batch: BatchRecord,
  { limit, ...filter }: { limit: number; status?: ItemStatus },
): Promise<{ items: ListedItem[]; pageOf: <View>(view: (item: ListedItem) => View) => ListEnvelope<View> }> {
  const { after, offset = 0 } = paging.start(request);
  const start = { afterPosition: after?.position ?? -1, offset };
  const found = await stores.read.items.listed(batch.id, { ...filter, ...start, limit: limit + 1 });
  return { items: found.slice(0, limit), pageOf: (view) => paging.page(found, limit, view) };
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

const microsOrNull = (micros: number | null) => (micros === null ? null : microsToNumber(micros));

/** Facts of an item that the list has when it is asked for them. */
interface ItemDetails {
  prompt?: string;
  references?: readonly ReferenceRecord[];
  outputs?: readonly OutputRecord[];
  retriedIn?: string | null;
}

function itemError({ code, message, source, said }: ItemError, isOwner: boolean): ItemObject["error"] {
  return { code, message: isOwner ? withUpstreamWords(message, said) : message, source };
}

/** How many requests for an item may be paid although no answer came. */
function lostRequests({ maybePaid, status }: Pick<ListedItem, "maybePaid" | "status">): number {
  const isFailed = status === "failed" ? 1 : 0;
  return maybePaid === "twice" ? 1 + isFailed : maybePaid === "once" ? isFailed : 0;
}

/** An item of a batch as the item list shows it. `isOwner`: with the upstream's own words about a failure. */
function itemView(
  item: ListedItem,
  { prompt, references, outputs, retriedIn }: ItemDetails,
  isOwner: boolean,
): ItemObject {
  const { priceMicroUsd } = item;
  const lost = lostRequests(item);
  return {
    custom_id: item.customId,
    status: item.status,
    prompt_preview: truncateCodePoints(item.prompt, FIXED_LIMITS.promptPreviewChars, "…"),
    mime_type: item.mimeType,
    file_extension: item.mimeType && IMAGE_EXTENSIONS[item.mimeType],
    image_count: item.imageCount,
    model_version: item.modelVersion,
    provider: item.status === "pending" ? null : item.provider,
    seed: item.seed,
    options: askedOptions(item.options),
    upstream_cost: microsOrNull(item.usage?.costMicroUsd ?? null),
    took_ms: item.usage?.tookMs ?? null,
    finished_at: item.finishedAtMs === null ? null : item.finishedAtMs / 1000,
    notes: [
      ...item.notes,
      ...(item.maybePaid === "twice" ? [PAID_TWICE_NOTE] : []),
      ...(item.maybePaid === "once" && item.status === "failed" ? [BILLED_NOTE] : []),
    ],
    error: item.error && itemError(item.error, isOwner),
    cost: item.status === "success" ? microsToNumber(priceMicroUsd) : null,
    ...(lost === 0 ? {} : { may_be_billed: microsToNumber(lost * priceMicroUsd) }),
    ...(prompt === undefined ? {} : { prompt }),
    ...(references && {
      references: references.map(({ referenceId: id, type, mimeType }) => ({
        id,
        type,
        mime_type: mimeType,
      })),
    }),
    ...(outputs && {
      images: outputs.map(({ mimeType, widthPx, heightPx, sizeBytes, sha256 }) => ({
        mime_type: mimeType,
        width: widthPx,
        height: heightPx,
        size: sizeBytes,
        sha256,
      })),
    }),
    ...(retriedIn === undefined ? {} : { retried_in: retriedIn }),
  };
}

export const listItems: Operation = {
  id: "listItems",
  method: "get",
  path: PATHS.items,
  summary: "Items of a batch, in request order",
  parameters: ["BatchId", "ItemStatus", "Include", "ItemLimit", "Cursor"],
  answers: { 200: { description: "A page of items.", schema: "ItemList" } },
  errors: ["BATCH_IMAGE_NOT_FOUND", "BATCH_IMAGE_INVALID_QUERY"],
  handler: (deps) => async (request, response) => {
    const caller = callerOf(response);
    const batch = await findBatch(deps.stores, caller, request.params.id);
    const status = readQuery(request, "ItemStatus");
    const filter = status === undefined || status === "all" ? {} : { status };
    const { items, pageOf } = await readItems(deps, request, batch, {
      limit: readQuery(request, "ItemLimit"),
      ...filter,
    });
    const detailsOf = await readDetails(deps, batch, items, new Set(readQuery(request, "Include")));
    response.json(pageOf((item) => itemView(item, detailsOf(item), caller.scope.isOwner)));
  },
};
