import { ImgbatchError } from "../contract/errors.ts";
import { FIXED_LIMITS } from "../contract/limits.ts";
import { IDEMPOTENCY_KEY_HEADER, IDEMPOTENCY_REPLAYED_HEADER, routes } from "../contract/routes.ts";
import { retryAfterMs } from "./answer-errors.ts";
import type { Http, JsonAnswer } from "./http.ts";
import { type Batch, readBatch } from "./read-batch.ts";
import {
  type BatchItem,
  endlessness,
  type ListedModel,
  readItem,
  readModel,
  readPage,
} from "./read-lists.ts";
import type { StreamedBody } from "./streamed-body.ts";

/** More items than any batch has. */
const MOST_ITEMS = 100_000;
/** A create body can be as large as 192 MiB of text. */
const CREATE_TIMEOUT_MS = 300_000;

export interface CreatedBatch {
  batch: Batch;
  /** The service knew the idempotency key and answered the batch that was made with it. */
  replayed: boolean;
}

/**
 * Makes a batch. `body` is the JSON text of the request, `key` its idempotency key: sending twice makes one batch.
 * Throws `SUBMISSION_UNKNOWN` when the request may have arrived without an answer; ask again with the same key. After
 * `signal` no other attempt leaves; the one under way ends with it too, or with `answerSignal` where that is given.
 * Rules: HTTP-7, HTTP-8.
 */
export async function createBatch(
  http: Http,
  body: string | StreamedBody,
  key: string,
  signals: { signal?: AbortSignal | undefined; answerSignal?: AbortSignal | undefined } = {},
): Promise<CreatedBatch> {
  const answer = await http.json({
    method: "POST",
    path: routes.batches,
    headers: { [IDEMPOTENCY_KEY_HEADER]: key },
    body,
    timeoutMs: CREATE_TIMEOUT_MS,
    submits: true,
    ...signals,
  });
  const batch = readBatch(answer.json);
  // Something was accepted, but what, only the same key can tell.
  if (batch === null)
    throw new ImgbatchError("SUBMISSION_UNKNOWN", "The service took the request and answered no batch.", {
      requestId: answer.requestId,
    });
  return { batch, replayed: isReplay(answer, batch) };
}

/** Not every service says so; but a batch that is under way already, or older than its request, was there before. */
function isReplay({ headers }: JsonAnswer, { status, createdAtMs }: Batch): boolean {
  const says = headers.get(IDEMPOTENCY_REPLAYED_HEADER)?.toLowerCase();
  if (says !== undefined) return says === "true";
  if (status !== "queued") return true;
  const answeredAtMs = Date.parse(headers.get("date") ?? "");
  return createdAtMs !== null && createdAtMs < answeredAtMs - CREATE_TIMEOUT_MS;
}

export interface Look {
  batch: Batch;
  /** When the service wants to be asked again. */
  retryAfterMs: number | null;
}

/** One look at a batch. `nowMs` reads a `Retry-After` date. */
export async function getBatch(
  http: Http,
  id: string,
  options: { signal?: AbortSignal | undefined; maxRetries?: number; nowMs?: number } = {},
): Promise<Look> {
  const { nowMs = 0, signal, ...rest } = options;
  const answer = await http.json({ method: "GET", path: routes.batch(id), signal, ...rest });
  const batch = readBatch(answer.json);
  if (batch?.id !== id) throw notThis(`the batch ${id}`, answer);
  return { batch, retryAfterMs: retryAfterMs(answer.headers, nowMs) };
}

/**
 * Every item of a batch, in request order, over as many pages as it takes. Throws `BAD_RESPONSE` for a list without an
 * end, and for one of more than `most` items (default 100 000).
 * Rule: HTTP-12.
 */
export async function listItems(
  http: Http,
  id: string,
  signal?: AbortSignal,
  most = MOST_ITEMS,
): Promise<BatchItem[]> {
  const items = new Map<string, BatchItem>();
  const isEndless = endlessness();
  let cursor = "";
  for (;;) {
    const before = items.size;
    const path = `${routes.items(id)}?limit=${FIXED_LIMITS.itemPageMax}${cursor}`;
    const answer = await http.json({ method: "GET", path, signal });
    const page = readPage(answer.json);
    if (page === null) throw notThis("a list of items", answer);
    for (const value of page.data) {
      const item = readItem(value);
      if (item === null) throw notThis("a list of items", answer);
      items.set(item.customId, item);
    }
    if (items.size > most) throw notThis(`a list of at most ${most} items, which ${id} can have`, answer);
    const isNew = items.size > before;
    // A service that does not say whether there is more is asked until it has nothing new.
    const hasMore = page.hasMore ?? (isNew && page.data.length >= FIXED_LIMITS.itemPageMax);
    if (!hasMore) return [...items.values()];
    // A page without anything new would be asked for without end.
    if (!isNew || isEndless(page.nextCursor, answer.bytes)) throw notThis("a list whose pages end", answer);
    cursor = `&cursor=${encodeURIComponent((page.nextCursor ?? String(items.size)).toWellFormed())}`;
  }
}

/** The models that this key can make batches with; the first one is the default. */
export async function listModels(http: Http, signal?: AbortSignal): Promise<ListedModel[]> {
  const answer = await http.json({ method: "GET", path: routes.batchModels, signal });
  const page = readPage(answer.json);
  const models = page?.data.map(readModel).filter((model) => model !== null) ?? [];
  // An empty list is one; a list of other things is none.
  if (page === null || (models.length === 0 && page.data.length > 0))
    throw notThis("a list of models", answer);
  return models;
}

function notThis(what: string, answer: JsonAnswer): ImgbatchError {
  const { requestId } = answer;
  return new ImgbatchError("BAD_RESPONSE", `The service's answer is not ${what}.`, { requestId });
}
