import { ImgbatchError } from "../contract/errors.ts";
import { type BatchStatus, isTerminal } from "../contract/statuses.ts";
import { fieldsOf } from "../kernel/json.ts";
import { numberToMicros } from "../kernel/money.ts";

interface BatchWaiting {
  /** One of `WAITING_CODES`, or the service's own word. */
  code: string;
  message: string;
  /** Null: until the configuration of the service changes. */
  untilMs: number | null;
  /** The upstream's own words, at most two lines; null when the service does not report them. */
  said: string | null;
}

/** A batch as the client sees it. */
export interface Batch {
  id: string;
  /** A known status, or the service's own word. */
  status: BatchStatus | (string & {});
  isDone: boolean;
  /** Set if the service does not know the batch, and these are the facts that the run's directory has. */
  isUnknown?: true;
  name: string | null;
  model: string | null;
  parentId: string | null;
  provider: string | null;
  /** The API that it was made with, such as `native`; null when the service does not say. */
  source: string | null;
  itemCount: number | null;
  /** 0 also when the service does not say; `hasCounts` is false then. */
  successCount: number;
  failCount: number;
  /** Whether the service reports the numbers of made and of all images. */
  hasCounts: boolean;
  estimatedCostMicroUsd: number | null;
  /** What was put on hold for the batch; null when the service does not say. */
  holdMicroUsd: number | null;
  actualCostMicroUsd: number | null;
  /** Whether the service reports that these amounts are no real money: the images are drawn. */
  isPlay: boolean;
  createdAtMs: number | null;
  /** When it was settled, or ended without a payment. */
  endedAtMs: number | null;
  error: { code: string; message: string } | null;
  /** Why the items cannot be made now; null when they can, or the service does not say. */
  waiting: BatchWaiting | null;
  /** How many batches come first; null when it is not queued, or the service does not say. */
  queuedBehind: number | null;
  /** Whether jobs of an upstream make its images, which can be ended. False if the service does not say. */
  isInJobs: boolean;
  /** The jobs at an upstream that make its items; empty when there are none, or the service does not say. */
  jobs: readonly { state: string; createdAtMs: number }[];
  /** The object as it came. */
  raw: Record<string, unknown>;
}

/**
 * Reads a batch; null when the value is none. Other services of this kind leave out fields, add some, and name two statuses
 * differently. Reading is tolerant: a missing field is null, a number may be written as text, an unknown field stays in
 * `raw`, and an unknown status is never "done".
 */
export function readBatch(value: unknown): Batch | null {
  const wire = fieldsOf(value);
  const [id, said] = [textOf(wire?.id), textOf(wire?.status)];
  if (wire === null || !id || said === null) return null;
  const status = said === "submitting" ? "queued" : said;
  const itemCount = countOf(numeric(wire.item_count));
  const successCount = countOf(numeric(wire.success_count));
  const failCount = countOf(numeric(wire.fail_count));
  return {
    id,
    status,
    isDone: isTerminal(status),
    name: textOf(wire.task_name),
    model: textOf(wire.model),
    parentId: textOf(wire.parent_batch_id),
    provider: textOf(wire.provider),
    source: textOf(wire.source),
    itemCount,
    successCount: successCount ?? 0,
    failCount: failCount ?? 0,
    hasCounts: successCount !== null && (itemCount !== null || failCount !== null),
    estimatedCostMicroUsd: microsOf(numeric(wire.estimated_cost)),
    holdMicroUsd: microsOf(numeric(wire.hold_amount)),
    actualCostMicroUsd: microsOf(numeric(wire.actual_cost)),
    isPlay: wire.play_money === true,
    createdAtMs: momentMsOf(numeric(wire.created_at)),
    endedAtMs: momentMsOf(numeric(wire.settled_at)),
    error: errorOf(wire.error),
    waiting: isTerminal(status) ? null : waitingOf(wire.waiting),
    queuedBehind: status === "queued" ? countOf(numeric(wire.queued_behind)) : null,
    isInJobs: wire.in_jobs === true,
    jobs: jobsOf(wire.upstream_jobs),
    raw: wire,
  };
}

function errorOf(value: unknown): Batch["error"] {
  const error = fieldsOf(value);
  return error && { code: textOf(error.code) ?? "UNKNOWN", message: textOf(error.message) ?? "" };
}

function waitingOf(value: unknown): BatchWaiting | null {
  const waiting = fieldsOf(value);
  const [code, message] = [textOf(waiting?.code), textOf(waiting?.message)];
  return code === null || message === null
    ? null
    : { code, message, untilMs: momentMsOf(numeric(waiting?.until)), said: textOf(waiting?.said) };
}

function jobsOf(value: unknown): Batch["jobs"] {
  return (Array.isArray(value) ? value : []).flatMap((each) => {
    const job = fieldsOf(each);
    const [state, createdAtMs] = [textOf(job?.state), momentMsOf(numeric(job?.created_at))];
    return state === null || createdAtMs === null ? [] : [{ state, createdAtMs }];
  });
}

/** No service makes more images of one item. A higher count is not believed. */
const MOST_IMAGES_OF_AN_ITEM = 100;

/** Facts of an item under the names of the API and of `results.jsonl`. One that the service does not report is absent. */
export interface ItemFacts {
  /** The provider that made or refused the image. */
  provider?: string;
  model_version?: string;
  seed?: number;
  /** US dollars: the bill of the upstream, where it is known. */
  upstream_cost?: number;
  /** US dollars. */
  cost?: number;
  /** US dollars that the upstream may bill, at most, for requests whose answers were lost. */
  may_be_billed?: number;
  /** The cost is no real money: the image was drawn. */
  play_money?: true;
  /** Milliseconds from the request at the provider to its answer. */
  took_ms?: number;
  notes?: string[];
}

/** An item as the client sees it. A missing field is null. */
export interface BatchItem {
  customId: string;
  status: "pending" | "success" | "failed" | (string & {});
  mimeType: string | null;
  imageCount: number;
  promptPreview: string | null;
  error: { code: string; message: string; source: string | null } | null;
  facts: ItemFacts;
  /** When it ended, in ms since 1970; null when the service does not say. */
  finishedAtMs: number | null;
  /** The object as it came. */
  raw: Record<string, unknown>;
}

/** Whether the service has images of an item. */
export function hasImages({ status, imageCount }: Pick<BatchItem, "status" | "imageCount">): boolean {
  return status === "success" && imageCount > 0;
}

/** Null when the value is not an item. A field that is missing, or holds something else, is null. */
export function readItem(value: unknown): BatchItem | null {
  const wire = fieldsOf(value);
  const [customId, said] = [textOf(wire?.custom_id), textOf(wire?.status)];
  if (wire === null || customId === null || said === null) return null;
  const status = said === "succeeded" ? "success" : said;
  const error = fieldsOf(wire.error);
  return {
    customId,
    status,
    mimeType: textOf(wire.mime_type),
    imageCount: countOf(wire.image_count, MOST_IMAGES_OF_AN_ITEM) ?? (status === "success" ? 1 : 0),
    promptPreview: textOf(wire.prompt_preview),
    error: error && {
      code: textOf(error.code) ?? "UNKNOWN",
      message: textOf(error.message) ?? "",
      source: textOf(error.source),
    },
    facts: factsOf(wire),
    finishedAtMs: momentMsOf(numeric(wire.finished_at)),
    raw: wire,
  };
}

function factsOf(wire: Record<string, unknown>): ItemFacts {
  const [provider, version] = [textOf(wire.provider), textOf(wire.model_version)];
  const seed = Number.isSafeInteger(wire.seed) ? (wire.seed as number) : null;
  const upstreamCost = usdOf(numeric(wire.upstream_cost));
  const cost = usdOf(numeric(wire.cost), 0);
  const mayBeBilled = usdOf(numeric(wire.may_be_billed), 0);
  const tookMs = countOf(numeric(wire.took_ms));
  const notes = textsOf(wire.notes);
  return {
    ...(provider === null ? {} : { provider }),
    ...(version === null ? {} : { model_version: version }),
    ...(seed === null ? {} : { seed }),
    ...(upstreamCost === null ? {} : { upstream_cost: upstreamCost }),
    ...(cost === null ? {} : { cost }),
    ...(mayBeBilled === null ? {} : { may_be_billed: mayBeBilled }),
    ...(tookMs === null ? {} : { took_ms: tookMs }),
    ...(notes.length === 0 ? {} : { notes }),
  };
}

interface Page {
  data: unknown[];
  /** Null when the service does not say. */
  hasMore: boolean | null;
  /** Null when the service names none: then the next page is asked for by offset. */
  nextCursor: string | null;
}

/** More entries than any honest page has. A page is read in one go. */
const MOST_ENTRIES_OF_A_PAGE = 100_000;

/** Null when the value is not a page of a list. */
export function readPage(value: unknown): Page | null {
  const list = fieldsOf(value);
  if (list === null || !Array.isArray(list.data) || list.data.length > MOST_ENTRIES_OF_A_PAGE) return null;
  const { data, has_more, next_cursor } = list;
  return {
    data,
    hasMore: typeof has_more === "boolean" ? has_more : null,
    nextCursor: textOf(next_cursor) || null,
  };
}

/** All pages of a list are in memory together. */
const MOST_BYTES_OF_A_LIST = 256 * 1024 * 1024;

/**
 * Returns a function that takes the next cursor and the size of each page of a list. It returns true when the list has
 * no end: a cursor was repeated, or all pages together are larger than any honest list.
 */
export function endlessness(): (cursor: string | null, pageBytes: number) => boolean {
  const seen = new Set<string>();
  let bytes = 0;
  return (cursor, pageBytes) => {
    bytes += pageBytes;
    if (bytes > MOST_BYTES_OF_A_LIST) return true;
    if (cursor === null) return false;
    const isKnown = seen.has(cursor);
    seen.add(cursor);
    return isKnown;
  };
}

/** The error for an answer of 2xx that is not `what`, such as `a list of models`. */
export function unexpectedAnswer(what: string, requestId: string | undefined): ImgbatchError {
  return new ImgbatchError("BAD_RESPONSE", `The service's answer is not ${what}.`, { requestId });
}

/*
 * Reading of single fields of an answer. It is tolerant: a field that is missing, or holds something else, is null. These
 * readers are written by hand because loading a library of schemas takes longer than a short command may.
 */

/** The most dollars that count as an amount: as many as can be counted in micro-dollars. */
export const MOST_USD = 1_000_000_000;
const LAST_SECOND = 8_640_000_000_000;

export function textOf(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

export function textsOf(value: unknown): string[] {
  return (Array.isArray(value) ? value : []).filter((each) => typeof each === "string");
}

/** A whole number from 0 up. */
function countOf(value: unknown, most = Number.MAX_SAFE_INTEGER): number | null {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= most
    ? (value as number)
    : null;
}

/** An amount of dollars. */
export function usdOf(value: unknown, least = -MOST_USD): number | null {
  return typeof value === "number" && value >= least && value <= MOST_USD ? value : null;
}

/** The same in micro-dollars. */
export function microsOf(value: unknown, least = -MOST_USD): number | null {
  const usd = usdOf(value, least);
  return usd === null ? null : numberToMicros(usd);
}

/** A time in seconds since 1970, within the range of dates, in ms. */
function momentMsOf(value: unknown): number | null {
  return typeof value === "number" && Math.abs(value) <= LAST_SECOND ? Math.round(value * 1000) : null;
}

/** A number that may be written as text. */
function numeric(value: unknown): unknown {
  return typeof value === "string" && /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value;
}
