import type {
  BatchModel,
  BatchObject,
  CreateBatchBody,
  ItemObject,
  ListEnvelope,
} from "../../contract/batch-api.ts";
import type { LedgerEntryObject } from "../../contract/console-api.ts";
import type { NativeBody } from "../../contract/native-api.ts";
import { IDEMPOTENCY_KEY_HEADER, MAX_COST_HEADER, PATHS, routes } from "../../contract/routes.ts";
import { whyNoImage } from "../../contract/statuses.ts";
import { microsToDecimal, numberToMicros } from "../../kernel/money.ts";
import { bytesOf } from "./files.ts";
import { ApiError, fetchJson } from "./request.ts";

type ItemList = ListEnvelope<ItemObject>;

/** One page of the item list: the most that the service sends at once. */
const ITEMS_PER_PAGE = 500;

/** The first pages of a list. `pages` is their number. */
interface Pages<T> {
  entries: T[];
  hasMore: boolean;
}

async function readPages<T>(
  path: string,
  query: URLSearchParams,
  { pages, signal }: { pages: number; signal: AbortSignal },
): Promise<Pages<T>> {
  const entries: T[] = [];
  query.set("limit", "50");
  for (let page = 0; page < pages; page++) {
    const list = await fetchJson<ListEnvelope<T>>(`${path}?${query}`, { signal });
    entries.push(...list.data);
    if (!list.has_more || list.next_cursor === null) return { entries, hasMore: false };
    query.set("cursor", list.next_cursor);
  }
  return { entries, hasMore: true };
}

/**
 * The first pages of the batches, the newest first; retries are in their first batch, unless a status is asked for. Throws
 * `ApiError`, as all functions here.
 */
export function listBatches(
  filter: { status: string; taskName: string },
  pages: number,
  signal: AbortSignal,
) {
  const query = new URLSearchParams();
  if (filter.status === "") query.set("include", "retries");
  else query.set("status", filter.status);
  if (filter.taskName !== "") query.set("task_name", filter.taskName);
  return readPages<BatchObject>(routes.batches, query, { pages, signal });
}

/** A page of the items in request order, with prompt, references and facts of the images. */
export function listItems(id: string, cursor: string | null, signal: AbortSignal): Promise<ItemList> {
  const query = new URLSearchParams({
    include: "prompt,references,images",
    limit: String(ITEMS_PER_PAGE),
    ...(cursor === null ? {} : { cursor }),
  });
  return fetchJson(`${routes.items(id)}?${query}`, { signal });
}

/** The first finished images of a batch. */
export async function firstImages(id: string, count: number, signal: AbortSignal): Promise<ItemObject[]> {
  const path = `${routes.items(id)}?status=success&limit=${count}`;
  return (await fetchJson<ItemList>(path, { signal })).data;
}

export async function batchModels(signal: AbortSignal): Promise<BatchModel[]> {
  return (await fetchJson<ListEnvelope<BatchModel>>(routes.batchModels, { signal })).data;
}

export function createBatch(body: CreateBatchBody, consent: Consent): Promise<BatchObject> {
  return fetchJson(routes.batches, { method: "POST", json: body, headers: consentHeaders(consent) });
}

/** Makes failed items again, as a new batch. */
export function retryBatch(id: string, customIds: string[], consent: Consent): Promise<BatchObject> {
  return fetchJson(routes.retry(id), {
    method: "POST",
    json: { custom_ids: customIds },
    headers: consentHeaders(consent),
  });
}

/** The first pages of the movements of money, the newest first. */
export function getLedger(pages: number, signal: AbortSignal) {
  return readPages<LedgerEntryObject>(PATHS.ledger, new URLSearchParams(), { pages, signal });
}

/** The agreement of a person to one request. */
interface Consent {
  /** The same key makes the same images once, however often it is sent. */
  idempotencyKey: string;
  /** US dollars of real money; null where the images cost none. */
  maxCost: number | null;
}

/** The headers that tell the service of it. */
function consentHeaders({ idempotencyKey, maxCost }: Consent): Record<string, string> {
  return {
    [IDEMPOTENCY_KEY_HEADER]: idempotencyKey,
    // A product of prices has more digits than an amount may have.
    ...(maxCost === null ? {} : { [MAX_COST_HEADER]: microsToDecimal(numberToMicros(maxCost)) }),
  };
}

/** Makes one image now. Throws `ApiError`, also for an answer without an image (`NO_IMAGE`). */
export async function generateImage(
  model: string,
  body: NativeBody<"GenerateContent">,
  consent: Consent,
  signal: AbortSignal,
): Promise<Blob> {
  const call = { method: "POST", json: body, headers: consentHeaders(consent), signal };
  const answer = await fetchJson<NativeBody<"GenerateContentAnswer">>(routes.generateContent(model), call);
  const [candidate] = answer.candidates ?? [];
  const image = candidate?.content?.parts?.find(
    ({ inlineData, thought }) => inlineData && !thought,
  )?.inlineData;
  if (image) return new Blob([bytesOf(image.data)], { type: image.mimeType });
  const { reason, words } = whyNoImage(answer);
  const why = words === "" ? reason : `${reason}: ${words}`;
  throw new ApiError("NO_IMAGE", `No image was made, and nothing is billed: ${why.replace(/\.$/, "")}.`, 200);
}
