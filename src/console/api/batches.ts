import type {
  BatchModel,
  BatchObject,
  CreateBatchBody,
  ItemObject,
  ListEnvelope,
  RetryBatchBody,
} from "../../contract/batch-api.ts";
import type { Ticket } from "../../contract/console-api.ts";
import { routes } from "../../contract/routes.ts";
import { type Consent, consentHeaders } from "./consent.ts";
import { fetchJson, send } from "./request.ts";

export type BatchList = ListEnvelope<BatchObject>;
export type ItemList = ListEnvelope<ItemObject>;

/** One page of the item list: the most that the service sends at once. */
const ITEMS_PER_PAGE = 500;

export interface BatchFilter {
  status: string;
  taskName: string;
}

/** A page of the batches, the newest first. Throws `ApiError`, as all functions here. */
export function listBatches(filter: BatchFilter, limit: number, signal: AbortSignal, cursor?: string) {
  const query = new URLSearchParams({ limit: String(limit) });
  if (filter.status !== "") query.set("status", filter.status);
  if (filter.taskName !== "") query.set("task_name", filter.taskName);
  if (cursor !== undefined) query.set("cursor", cursor);
  return fetchJson<BatchList>(`${routes.batches}?${query}`, { signal });
}

export function getBatch(id: string, signal: AbortSignal): Promise<BatchObject> {
  return fetchJson(routes.batch(id), { signal });
}

/** A page of the items in request order, with prompt, references, facts of the images, and whether they are made again. */
export function listItems(id: string, cursor: string | null, signal: AbortSignal): Promise<ItemList> {
  const query = new URLSearchParams({
    include: "prompt,references,images,retries",
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
  const json: RetryBatchBody = { custom_ids: customIds };
  return fetchJson(routes.retry(id), { method: "POST", json, headers: consentHeaders(consent) });
}

export async function cancelBatch(id: string): Promise<void> {
  await send(routes.cancel(id), { method: "POST" });
}

export async function deleteOutputs(id: string): Promise<void> {
  await send(routes.outputs(id), { method: "DELETE" });
}

/** Deletes the images of one item. */
export async function deleteImages(id: string, customId: string): Promise<void> {
  await send(routes.content(id, customId), { method: "DELETE" });
}

export async function deleteRecord(id: string): Promise<void> {
  await send(routes.batch(id), { method: "DELETE" });
}

/** A link to the ZIP with all images, for the browser to follow once. */
export async function zipLink(id: string): Promise<string> {
  return (await fetchJson<Ticket>(routes.ticket(id), { method: "POST" })).url;
}
