import type { ItemExtra } from "../contract/batch-api.ts";
import { type ErrorCode, ImgbatchError } from "../contract/errors.ts";
import { FIXED_LIMITS } from "../contract/limits.ts";
import {
  FIND_ONLY_HEADER,
  IDEMPOTENCY_KEY_HEADER,
  IDEMPOTENCY_REPLAYED_HEADER,
  MAX_COST_HEADER,
  routes,
} from "../contract/routes.ts";
import type { Http, HttpRequest, JsonAnswer } from "../http/http.ts";
import { retryAfterMs } from "../http/retries.ts";
import type { StreamedBody } from "../http/transport.ts";
import { microsToDecimal } from "../kernel/money.ts";
import {
  type Batch,
  type BatchItem,
  endlessness,
  readBatch,
  readItem,
  readPage,
  unexpectedAnswer,
} from "./answers.ts";

/** A create body can be as large as 192 MiB of text. */
const CREATE_TIMEOUT_MS = 300_000;

interface CreatedBatch {
  batch: Batch;
  /** The service knew the idempotency key and returned the batch that was made with it. */
  replayed: boolean;
}

/**
 * Makes a batch. `body` is the JSON text of the request, `key` its idempotency key: sending twice makes one batch.
 * Throws `SUBMISSION_UNKNOWN` when the request may have arrived without an answer: ask again with the same key. After
 * `signal` no further attempt leaves. The attempt under way ends with `answerSignal` if given, else with `signal`.
 * `consentMicroUsd` is the most that the batch may hold, with the caller's consent to pay it; null, the default, is none.
 * With `isFindOnly`, a service of ours makes nothing: it returns the batch of the key, or throws `BATCH_IMAGE_NOT_FOUND`.
 */
export async function createBatch(
  http: Http,
  body: string | StreamedBody,
  key: string,
  options: {
    signal?: AbortSignal | undefined;
    answerSignal?: AbortSignal | undefined;
    consentMicroUsd?: number | null;
    isFindOnly?: boolean;
  } = {},
): Promise<CreatedBatch> {
  const { consentMicroUsd = null, isFindOnly = false, ...signals } = options;
  const answer = await http.json({
    method: "POST",
    path: routes.batches,
    headers: {
      [IDEMPOTENCY_KEY_HEADER]: key,
      ...(consentMicroUsd === null ? {} : { [MAX_COST_HEADER]: microsToDecimal(consentMicroUsd) }),
      ...(isFindOnly ? { [FIND_ONLY_HEADER]: "true" } : {}),
    },
    body,
    timeoutMs: CREATE_TIMEOUT_MS,
    submits: true,
    ...signals,
  });
  const batch = readBatch(answer.json);
  // Something was accepted. Only the same key can find out which batch it was.
  if (batch === null)
    throw new ImgbatchError("SUBMISSION_UNKNOWN", "The service accepted the request but returned no batch.", {
      requestId: answer.requestId,
    });
  return { batch, replayed: isReplay(answer, batch) };
}

/** Not every service sends the header. A batch that is under way already, or older than its request, existed before. */
function isReplay({ headers }: JsonAnswer, { status, createdAtMs }: Batch): boolean {
  const replayed = headers.get(IDEMPOTENCY_REPLAYED_HEADER)?.toLowerCase();
  if (replayed !== undefined) return replayed === "true";
  if (status !== "queued") return true;
  const answeredAtMs = Date.parse(headers.get("date") ?? "");
  return createdAtMs !== null && createdAtMs < answeredAtMs - CREATE_TIMEOUT_MS;
}

interface BatchSnapshot {
  batch: Batch;
  /** How long the service asks to wait before the next request, in ms; null when it does not ask. */
  retryAfterMs: number | null;
}

/** Gets a batch as it is now. `nowMs` is needed to read a `Retry-After` date. */
export async function getBatch(
  http: Http,
  id: string,
  options: { signal?: AbortSignal | undefined; maxRetries?: number; nowMs?: number } = {},
): Promise<BatchSnapshot> {
  const { nowMs = 0, signal, ...rest } = options;
  const answer = await http.json({ method: "GET", path: routes.batch(id), signal, ...rest });
  const batch = readBatch(answer.json);
  if (batch?.id !== id) throw unexpectedAnswer(`the batch ${id}`, answer.requestId);
  return { batch, retryAfterMs: retryAfterMs(answer.headers, nowMs) };
}

/** Selects batches of the key. A field that is absent selects all. Times are written as the service takes them. */
export interface BatchFilter {
  status?: string | undefined;
  task_name?: string | undefined;
  downloaded?: "true" | "false" | undefined;
  from?: string | undefined;
  to?: string | undefined;
}

interface FoundBatches {
  batches: Batch[];
  /** Whether there are more than were asked for. */
  hasMore: boolean;
}

/** More batches than any key has. */
const MOST_BATCHES = 1_000_000;

/**
 * Returns the batches of the key, newest first: at most `limit`, or all of them when it is null. Throws `BAD_RESPONSE`
 * for a list without an end, since its missing part is not known.
 */
export async function listBatches(
  http: Http,
  filter: BatchFilter,
  limit: number | null,
  signal?: AbortSignal,
): Promise<FoundBatches> {
  const list = {
    entries: "batches",
    path: (page: { limit: number; cursor: string | null }) => pathOf(filter, page),
    pageSize: FIXED_LIMITS.batchPageMax,
    read: readBatch,
    idOf: (batch: Batch) => batch.id,
    most: MOST_BATCHES,
    wanted: limit ?? undefined,
  };
  const { entries, hasMore } = await readPages(http, list, signal);
  return { batches: entries, hasMore };
}

/** A list of the batch API, and how to read it. */
interface PagedList<Entry> {
  /** Names the entries in errors: `items`. */
  entries: string;
  path(page: { limit: number; cursor: string | null }): string;
  /** The most entries that the service gives in one page. */
  pageSize: number;
  /** Null when the value is not an entry. */
  read(value: unknown): Entry | null;
  /** An entry that comes twice counts once. */
  idOf(entry: Entry): string;
  /** A longer list is an error. A function that returns the limit is called once, before the second page. */
  most: number | (() => Promise<number>);
  /** The number of wanted entries. Default: all. */
  wanted?: number | undefined;
}

interface FoundEntries<Entry> {
  entries: Entry[];
  /** Whether the list has more entries than were wanted. */
  hasMore: boolean;
}

/** After this many pages, a list with fewer than `FEWEST_OF_A_PAGE` entries a page counts as one without an end. */
const MANY_PAGES = 1000;

const FEWEST_OF_A_PAGE = 10;

/**
 * Reads a list in its own order, over as many pages as needed. Throws `BAD_RESPONSE` for a list without an end, for one
 * with more than `most` entries, and for an answer that is not such a list.
 */
async function readPages<Entry>(
  http: Http,
  list: PagedList<Entry>,
  signal?: AbortSignal,
): Promise<FoundEntries<Entry>> {
  const { wanted = Number.POSITIVE_INFINITY } = list;
  const found = new Map<string, Entry>();
  const isEndless = endlessness();
  let cursor: string | null = null;
  let most = typeof list.most === "number" ? list.most : null;
  for (let pages = 1; ; pages++) {
    const before = found.size;
    const limit = Math.min(list.pageSize, wanted - before);
    const answer = await http.json({ method: "GET", path: list.path({ limit, cursor }), signal });
    const { requestId } = answer;
    const page = readPage(answer.json);
    if (page === null) throw unexpectedAnswer(`a list of ${list.entries}`, requestId);
    for (const value of page.data) {
      const entry = list.read(value);
      if (entry === null) throw unexpectedAnswer(`a list of ${list.entries}`, requestId);
      found.set(list.idOf(entry), entry);
    }
    if (most !== null && found.size > most) throw tooLong(http, list.entries, most, requestId);
    const isNew = found.size > before;
    // A service that does not report whether there is more is asked until it has nothing new.
    const hasMore = page.hasMore ?? (isNew && page.data.length >= limit);
    if (!hasMore || found.size >= wanted)
      return { entries: [...found.values()].slice(0, wanted), hasMore: hasMore || found.size > wanted };
    // After a page without anything new, the next one would be asked for without end.
    const isThin = pages >= MANY_PAGES && found.size < pages * FEWEST_OF_A_PAGE;
    if (!isNew || isThin || isEndless(page.nextCursor, answer.bytes))
      throw unexpectedAnswer(`a list of ${list.entries} whose pages end`, requestId);
    if (most === null && typeof list.most === "function") most = await list.most();
    if (most !== null && found.size > most) throw tooLong(http, list.entries, most, requestId);
    cursor = (page.nextCursor ?? String(found.size)).toWellFormed();
  }
}

function tooLong({ baseUrl }: Http, entries: string, most: number, requestId: string | undefined) {
  const message = `${baseUrl} lists more ${entries} than there are (${most}).`;
  return new ImgbatchError("BAD_RESPONSE", message, { requestId });
}

function pathOf(filter: BatchFilter, { limit, cursor }: { limit: number; cursor: string | null }): string {
  const query = new URLSearchParams({ limit: String(limit) });
  for (const [name, value] of Object.entries(filter)) if (value !== undefined) query.set(name, value);
  if (cursor !== null) query.set("cursor", cursor);
  return `${routes.batches}?${query}`;
}

/** More items than any batch has. */
const MOST_ITEMS = 100_000;
/** A service may list the items of a batch that it does not show. */
const UNTOLD: readonly ErrorCode[] = ["BAD_RESPONSE", "NOT_FOUND", "BATCH_IMAGE_NOT_FOUND"];

/**
 * Returns every item of a batch, in request order. Throws `BAD_RESPONSE` for a list without an end, and for one with more
 * than `most` items. Default: as many as the batch says, and 100 000 if it does not say. `include`: more facts, in
 * `raw`, which a service of ours knows.
 */
export async function listItems(
  http: Http,
  id: string,
  signal?: AbortSignal,
  most?: number,
  include?: readonly ItemExtra[],
): Promise<BatchItem[]> {
  const counted = async () => {
    const batch = await getBatch(http, id, { signal }).catch((error) => {
      if (error instanceof ImgbatchError && UNTOLD.includes(error.code)) return null;
      throw error;
    });
    const { itemCount = null, successCount = 0, failCount = 0 } = batch?.batch ?? {};
    return itemCount === null ? MOST_ITEMS : Math.max(itemCount, successCount + failCount);
  };
  const path = ({ limit, cursor }: { limit: number; cursor: string | null }) =>
    `${routes.items(id)}?limit=${limit}${include === undefined ? "" : `&include=${include.join(",")}`}${cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`}`;
  const list = {
    entries: "items",
    path,
    pageSize: FIXED_LIMITS.itemPageMax,
    read: readItem,
    idOf: (item: BatchItem) => item.customId,
    most: most ?? counted,
  };
  return (await readPages(http, list, signal)).entries;
}

/**
 * Returns ended batches with their counts. Where the service does not send them, the items are listed and counted: an item
 * without an image has failed. Any other batch is returned as it is.
 */
export async function withCounts(
  http: Http,
  batches: readonly Batch[],
  signal?: AbortSignal,
): Promise<Batch[]> {
  const counted: Batch[] = [];
  for (const batch of batches) {
    const { hasCounts, isDone, isUnknown, status } = batch;
    if (hasCounts || !isDone || isUnknown || status === "output_deleted") {
      counted.push(batch);
      continue;
    }
    const items = await listItems(http, batch.id, signal);
    const successCount = items.filter((item) => item.status === "success").length;
    const itemCount = items.length;
    counted.push({ ...batch, itemCount, successCount, failCount: itemCount - successCount, hasCounts: true });
  }
  return counted;
}

/**
 * Sends a request that changes a batch. The answer is not read: services differ in it, and some send none. Returns how
 * often the request was sent, and the error of the last attempt or null.
 */
async function sendChange(http: Http, request: HttpRequest): Promise<{ attempts: number; error: unknown }> {
  let attempts = 0;
  const next = async () => {
    attempts++;
    return request;
  };
  try {
    await http.stream(next, async (response) => response.cancel());
    return { attempts, error: null };
  } catch (error) {
    return { attempts, error };
  }
}

/** Asks a service to stop a batch, and returns the batch as it is afterwards. An ended batch stays as it is. */
export async function cancelBatch(http: Http, id: string, signal?: AbortSignal): Promise<Batch> {
  const { error } = await sendChange(http, { method: "POST", path: routes.cancel(id), signal });
  if (error !== null) throw error;
  return (await getBatch(http, id, { signal })).batch;
}

/**
 * Asks a service to end the jobs of a batch at their upstream. Returns the batch, which ends once the upstream has ended them.
 * An ended batch stays as it is.
 */
export async function endJobs(http: Http, id: string, signal?: AbortSignal): Promise<Batch> {
  const { error } = await sendChange(http, { method: "POST", path: routes.endJobs(id), signal });
  if (error !== null) throw error;
  return (await getBatch(http, id, { signal })).batch;
}

/**
 * Lets a stopped batch go on, because this command names it. With `isLease`, the service of another command stops it again
 * unless this is repeated every few seconds.
 */
export async function goOn(http: Http, id: string, isLease: boolean, signal?: AbortSignal): Promise<Batch> {
  const path = `${routes.goOn(id)}${isLease ? "?lease=true" : ""}`;
  const answer = await http.json({ method: "POST", path, signal });
  const batch = readBatch(answer.json);
  if (batch === null) throw unexpectedAnswer("a batch", answer.requestId);
  return batch;
}

/** Gives back the lease of `goOn`. */
export async function stopGoing(http: Http, id: string, signal?: AbortSignal): Promise<void> {
  await http.json({ method: "DELETE", path: routes.goOn(id), maxRetries: 0, signal });
}

/** Makes the failed items of an ended batch again, as a new batch. Never sent twice: each answer makes another batch. */
export async function retryBatch(http: Http, id: string, signal?: AbortSignal): Promise<Batch> {
  const answer = await http.json({ method: "POST", path: routes.retry(id), maxRetries: 0, signal });
  const batch = readBatch(answer.json);
  if (batch === null) throw unexpectedAnswer("a batch", answer.requestId);
  return batch;
}

/** Deletes the images of an ended batch, and returns the batch as it is afterwards. */
export async function deleteOutputs(http: Http, id: string, signal?: AbortSignal): Promise<Batch> {
  const { error } = await sendChange(http, { method: "DELETE", path: routes.outputs(id), signal });
  if (error !== null) throw error;
  return (await getBatch(http, id, { signal })).batch;
}

/**
 * Hides an ended batch for good. An earlier attempt without a response may have hidden the batch already: then a
 * missing batch counts as success.
 */
export async function deleteRecord(http: Http, id: string, signal?: AbortSignal): Promise<void> {
  const request = { method: "DELETE" as const, path: routes.batch(id), signal };
  const { attempts, error } = await sendChange(http, request);
  const wasDone = attempts > 1 && error instanceof ImgbatchError && error.code === "BATCH_IMAGE_NOT_FOUND";
  if (error !== null && !wasDone) throw error;
}

/** A code that signs in to the web console of a service once. */
interface SignInCode {
  code: string;
  /** Unix time in seconds. */
  expiresAt: number;
}

/** Asks a service for a code for its web console. Throws `NOT_FOUND` where it has none. */
export async function makeSignInCode(http: Http, signal?: AbortSignal): Promise<SignInCode> {
  const request = { method: "POST", path: routes.consoleCodes, signal } as const;
  const { json, requestId } = await http.json(request).catch((error) => {
    if (!(error instanceof ImgbatchError) || error.httpStatus !== 404) throw error;
    const message = `${http.baseUrl} has no web console: it is switched off, or the service is older.`;
    const advice = "set features.console to true in the configuration of the service, and restart it";
    throw new ImgbatchError("NOT_FOUND", message, { advice, cause: error });
  });
  const { code, expires_at } = (json ?? {}) as { code?: unknown; expires_at?: unknown };
  if (typeof code !== "string" || !/^[\w-]+$/.test(code) || !Number.isInteger(expires_at))
    throw unexpectedAnswer("a code to sign in with", requestId);
  return { code, expiresAt: expires_at as number };
}
