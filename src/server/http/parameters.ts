import type { Request } from "express";
import { z } from "zod";
import { ITEM_EXTRAS, type ItemExtra, type ListEnvelope } from "../../contract/batch-api.ts";
import { CHALLENGE } from "../../contract/data-directory.ts";
import type { ImgbatchError, ServiceErrorCode } from "../../contract/errors.ts";
import { IMAGE_MIME_TYPES } from "../../contract/image-formats.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { FILE_PURPOSES } from "../../contract/openai-api.ts";
import { TEST_HEADER } from "../../contract/routes.ts";
import { BATCH_STATUSES, ITEM_STATUSES } from "../../contract/statuses.ts";
import { fieldError } from "./errors.ts";

const RFC_3339 = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})$/;
const DAY = /^\d{4}-\d{2}-\d{2}$/;
const UNIX_SECONDS = /^\d{1,11}$/;
const DAY_SECONDS = 86_400;

/** The span of a time in a query, in whole seconds since 1970: one second, or a day of UTC. */
interface QueryInstant {
  firstSecond: number;
  lastSecond: number;
}

function second(value: number): QueryInstant {
  return { firstSecond: value, lastSecond: value };
}

/** `Date` reads February 30 as a day of March; here it is an error. */
function isRealDay(day: string): boolean {
  const ms = Date.parse(`${day}T00:00:00Z`);
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(day);
}

/** Reads a time: RFC 3339, `YYYY-MM-DD` or Unix seconds. Null for any other text. */
function instantOf(encoded: string): QueryInstant | null {
  // A plus that was not encoded arrives as a space; in a time it can only have been a plus.
  const text = encoded.replace(/ (?=\d{2}:\d{2}$)/, "+");
  if (UNIX_SECONDS.test(text)) return second(Number(text));
  if (DAY.test(text) && isRealDay(text)) {
    const firstSecond = Date.parse(`${text}T00:00:00Z`) / 1000;
    return { firstSecond, lastSecond: firstSecond + DAY_SECONDS - 1 };
  }
  if (RFC_3339.test(text) && isRealDay(text.slice(0, 10))) {
    const ms = Date.parse(text.replace(" ", "T").toUpperCase());
    if (!Number.isNaN(ms)) return second(Math.floor(ms / 1000));
  }
  return null;
}

/** A parameter of operations: how the API describes it, and how the text of a query is read. */
interface Parameter<Value, Absent> {
  name: string;
  in: "path" | "query" | "header";
  description: string;
  /** Reads the text. Its message about a wrong text follows the name of the parameter in the error. */
  schema: z.ZodType<Value>;
  /** The value of an absent or empty parameter. */
  fallback: Absent;
  /** The error for a wrong text, and for a parameter that is given twice. */
  code: ServiceErrorCode;
  /** Another spelling of the name. */
  alias?: string;
}

const invalid = "BATCH_IMAGE_INVALID_QUERY";
const invalidAtGoogle = "REALTIME_INVALID_ARGUMENT";

const inPlace =
  (place: "path" | "header") =>
  (name: string, description: string, schema: z.ZodType = z.string()): Parameter<unknown, undefined> => ({
    name,
    in: place,
    description,
    schema,
    fallback: undefined,
    code: invalid,
  });
const path = inPlace("path");
const header = inPlace("header");

const query = <Value, Absent = undefined>(
  name: string,
  description: string,
  schema: z.ZodType<Value>,
  more: { fallback?: Absent; code?: ServiceErrorCode; alias?: string } = {},
): Parameter<Value, Absent> => ({
  name,
  in: "query",
  description,
  schema,
  fallback: undefined as Absent,
  code: invalid,
  ...more,
});

/** A page of Google's API: 0 asks for the usual size, and a size above the maximum for the maximum. */
const pageSize = (entries: string, usual: number, max: number) => {
  const error = "must be one whole number";
  const read = (text: unknown) => (/^\d{1,9}$/.test(String(text)) ? Math.min(Number(text), max) : text);
  const schema = z.preprocess(read, z.int({ error }).min(0).max(max).meta({ default: usual }));
  const description = `${entries} on a page; a larger number counts as the maximum.`;
  return query("pageSize", description, schema, { fallback: 0, code: invalidAtGoogle, alias: "page_size" });
};

const oneOf = <const Values extends readonly string[]>(values: Values) =>
  z.enum(values, { error: `must be one of ${values.join(", ")}` });

/** A whole number from `min`, up to `max` if there is one. */
const integer = (min: number, max?: number) => {
  const error = `must be an integer from ${min}${max === undefined ? "" : ` to ${max}`}`;
  const number = z.int({ error }).min(min, { error });
  const read = (text: unknown) => (/^-?\d+$/.test(String(text)) ? Number(text) : text);
  return z.preprocess(read, max === undefined ? number : number.max(max, { error }));
};

const pageLimit = (entries: string, usual: number, max: number) =>
  query("limit", `${entries} on a page.`, integer(1, max), { fallback: usual });

const time = z
  .string()
  .meta({ examples: ["2030-01-31", "2030-01-31T12:00:00Z", "1896048000"] })
  .transform((text, check) => {
    const instant = instantOf(text);
    if (instant !== null) return instant;
    check.addIssue("must be an RFC 3339 time, a day such as 2030-01-31, or Unix seconds");
    return z.NEVER;
  });

const extras = ITEM_EXTRAS.join("|");
const printable = z
  .string()
  .min(1)
  .max(FIXED_LIMITS.idempotencyKeyChars)
  .regex(/^[\x20-\x7e]+$/);

const {
  batchPageDefault,
  batchPageMax,
  filePageDefault,
  filePageMax,
  itemPageDefault,
  itemPageMax,
  jobPageDefault,
  jobPageMax,
  ledgerPageDefault,
  ledgerPageMax,
  thumbnailPageMax,
} = FIXED_LIMITS;

/** The parameters of all operations, by the names that these have for them. */
export const PARAMETERS = {
  RequestId: header(
    "x-request-id",
    "Echoed when it is well formed; else the service makes one.",
    z.string().regex(/^[A-Za-z0-9._-]{1,128}$/),
  ),
  IdempotencyKey: header(
    "Idempotency-Key",
    "Printable ASCII, one for each batch: the same request with the same key is answered with the same batch.",
    printable,
  ),
  RequestKey: header(
    "Idempotency-Key",
    "Printable ASCII, one for each image: the same request with the same key gets the same answer for 24 hours, and is paid for once.",
    printable,
  ),
  MaxCost: header(
    "x-imgbatch-max-cost",
    "The most that the request may cost, in US dollars with at most 6 decimals. For the local key and an upstream that costs money: the account is granted what the request holds, or the request is refused. For other keys it has no effect.",
    z
      .string()
      .regex(/^[0-9]+(\.[0-9]{1,6})?$/)
      .meta({ examples: ["1.25"] }),
  ),
  TestName: header(
    TEST_HEADER,
    "Keeps tests apart: a fault meets only requests with the same name, and the journal shows only those.",
    z.string().regex(/^[\x20-\x7e]{1,200}$/),
  ),
  FindOnly: header(
    "x-imgbatch-find-only",
    "`true`: only return the batch that the `Idempotency-Key` made before. If there is none, the answer is 404, and nothing is made.",
    oneOf(["true"]),
  ),
  BatchId: path("id", "Id of a batch that this key made."),
  CustomId: path("custom_id", "Id of an item, as the item list has it."),
  BatchStatus: query("status", "Only batches of this status.", oneOf(["all", ...BATCH_STATUSES])),
  TaskName: query(
    "task_name",
    "Only batches whose name contains this, upper and lower case alike.",
    z.string(),
  ),
  ProviderName: path("provider", "Name of a configured provider."),
  Provider: query("provider", "Only models that this provider serves, with its prices.", z.string()),
  Downloaded: query(
    "downloaded",
    "`true` for batches that were downloaded, `false` for the others.",
    oneOf(["true", "false"]),
  ),
  From: query("from", "Only batches created then or later: RFC 3339, a day of UTC, or Unix seconds.", time),
  To: query("to", "Only batches created then or earlier; a day counts to its end.", time),
  IncludeRetries: query(
    "include",
    `\`retries\`: each batch with its newest retries, at most ${batchPageMax}. A list has a retry elsewhere only if the filter leaves out its first batch.`,
    oneOf(["retries"]),
  ),
  Lease: query(
    "lease",
    "`true`: the caller says so again every 2 seconds, and the service of another command stops the batch 6 seconds after the last time. A service that stays takes no notice.",
    oneOf(["true"]),
  ),
  BatchLimit: pageLimit("Batches", batchPageDefault, batchPageMax),
  ItemStatus: query("status", "Only items of this status.", oneOf(["all", ...ITEM_STATUSES])),
  Include: query(
    "include",
    "More facts of each item, with commas between them.",
    z
      .string()
      .regex(new RegExp(`^(${extras})(,(${extras}))*$`), {
        error: `must be a list of ${ITEM_EXTRAS.join(", ")}`,
      })
      .transform((text) => text.split(",") as ItemExtra[]),
  ),
  ItemLimit: pageLimit("Items", itemPageDefault, itemPageMax),
  Cursor: query(
    "cursor",
    "`next_cursor` of the page before; a plain number is an offset of at most 10,000.",
    z.string(),
  ),
  ImageIndex: query("image_index", "The index of the image within the item, from 0.", integer(0), {
    fallback: 0,
    code: "BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE",
  }),
  ImageType: query(
    "mime_type",
    "The type to convert the image into. Default: as the upstream sent it.",
    oneOf(IMAGE_MIME_TYPES),
  ),
  Early: query(
    "early",
    "Also an image whose batch has not ended. Default: such a request is 409 `BATCH_IMAGE_NOT_READY`.",
    oneOf(["true"]),
  ),
  ThumbnailWidth: query(
    "width",
    "The side of the square that it fits into, in pixels.",
    oneOf(["256", "1024"]),
    {
      fallback: "256",
    },
  ),
  ThumbnailLimit: pageLimit("Items", thumbnailPageMax, thumbnailPageMax),
  ReferenceIndex: path("index", "The index of the reference in the item list, from 0.", z.int().min(0)),
  UsageFrom: query("from", "The first day, or a later moment in it; default: 29 days before `to`.", time),
  UsageTo: query("to", "The last day, or an earlier moment in it; default: now.", time),
  Ticket: query("ticket", "A part of the `url` of a ticket: no key is needed with it.", z.string()),
  LedgerLimit: pageLimit("Entries", ledgerPageDefault, ledgerPageMax),
  ZipStatus: query(
    "status",
    "The items of the ZIP: their images, or for `failed` only their errors.",
    oneOf(["success", "failed", "all"]),
    { fallback: "success" },
  ),
  MaxItems: query("max_items", "A ZIP with more items than this is refused, never cut.", integer(1)),
  Challenge: query(
    "challenge",
    "A fresh random text; `proof` answers it.",
    z.string().regex(CHALLENGE, { error: "must be 32 to 128 of the characters A-Z, a-z, 0-9, _ and -" }),
  ),
  ReadyFor: query(
    "for",
    "`work`: whether new batches are taken, too, for which workers must run.",
    oneOf(["work"]),
  ),
  Range: header("Range", "One range of bytes; several are answered with the whole."),
  IfRange: header("If-Range", "The range only if the ETag still is this one; else the whole."),
  OutputName: path("name", "The last part of the URL in the answer: whoever knows it sees the image."),
  Model: path("model", "Id of a model that this key can use."),
  PageSize: pageSize("Models", 50, 1000),
  FilePageSize: pageSize("Files", filePageDefault, filePageMax),
  File: path("file", "Id of a file of this key."),
  UploadId: query(
    "upload_id",
    "Goes on with an upload; a part of the URL in `X-Goog-Upload-URL`.",
    z.string(),
  ),
  UploadCommand: header(
    "X-Goog-Upload-Command",
    "`start` begins an upload. With `upload_id`: `upload` brings bytes, `finalize` ends it (both: `upload, finalize`), `query` reports the received size, `cancel` gives up. Absent for a multipart body.",
  ),
  UploadOffset: header(
    "X-Goog-Upload-Offset",
    "Where the bytes belong. Received ones are skipped.",
    z.int().min(0),
  ),
  UploadProtocol: header("X-Goog-Upload-Protocol", "Of `start`.", z.literal("resumable")),
  UploadFileBytes: header(
    "X-Goog-Upload-Header-Content-Length",
    "Of `start`: the size of the file.",
    z.int().min(0),
  ),
  UploadFileType: header("X-Goog-Upload-Header-Content-Type", "Of `start`: the type of the file."),
  PageToken: query("pageToken", "`nextPageToken` of the page before.", z.string(), { alias: "page_token" }),
  JobId: path("id", "Id of a batch job that this key made, behind `batches/` in its name."),
  JobPageSize: pageSize("Jobs", jobPageDefault, jobPageMax),
  OpenaiLimit: query(
    "limit",
    "Entries on a page; a larger number than 100 counts as 100.",
    integer(1, 10_000),
  ),
  OpenaiAfter: query("after", "`last_id` of the page before.", z.string()),
  OpenaiOrder: query("order", "By the time of the upload.", oneOf(["asc", "desc"]), { fallback: "desc" }),
  OpenaiPurpose: query(
    "purpose",
    "Only files that were uploaded for this.",
    oneOf([...FILE_PURPOSES, "batch_output"]),
  ),
  OpenaiBatchId: path("id", "Id of a batch that this key made with this API."),
  ResponseId: path("id", "Id of a response that this key got."),
  StreamAgain: query("stream", "`true`: as the events of its stream.", oneOf(["true", "false"]), {
    code: invalidAtGoogle,
  }),
  StartingAfter: query(
    "starting_after",
    "With `stream`: only the events behind the one of this `sequence_number`.",
    integer(0),
    { code: invalidAtGoogle },
  ),
  InteractionId: path("id", "Id of an interaction of this key."),
  LastEventId: query(
    "last_event_id",
    "With `stream`: only the events behind the one of this `event_id`.",
    integer(0),
    { code: invalidAtGoogle },
  ),
  IncludeInput: query("include_input", "`true`: with what was asked for.", oneOf(["true", "false"]), {
    code: invalidAtGoogle,
  }),
  RetryCount: header(
    "X-Stainless-Retry-Count",
    "Sent by OpenAI's library. Above 0, a request that equals one of the last 35 minutes gets the batch of that one.",
    z.int().min(0),
  ),
  Alt: query(
    "alt",
    "`sse` for events; else one JSON array.",
    z.enum(["sse", "json"], { error: "must be sse or json" }),
    { code: invalidAtGoogle },
  ),
  IfNoneMatch: header("If-None-Match", "Nothing if the ETag still is this one."),
};

export type ParameterId = keyof typeof PARAMETERS;

type Value<Id extends ParameterId> =
  (typeof PARAMETERS)[Id] extends Parameter<infer Given, infer Absent> ? Given | Absent : never;

/** Returns a query parameter as its schema reads it. Throws the error of the parameter, which names it. */
export function readQuery<Id extends ParameterId>(request: Request, id: Id): Value<Id> {
  const { name, alias = name, schema, fallback, code }: Parameter<unknown, unknown> = PARAMETERS[id];
  const text = request.query[name] ?? request.query[alias];
  if (text === undefined || text === "") return fallback as Value<Id>;
  if (typeof text !== "string") throw fieldError(code, name, "may be given once");
  const read = schema.safeParse(text);
  if (read.success) return read.data as Value<Id>;
  throw fieldError(code, name, read.error.issues[0]?.message ?? "is not valid");
}

export const invalidQuery = (name: string, problem: string): ImgbatchError =>
  fieldError(invalid, name, problem);

/** The database reads all rows up to an offset, so a larger one would take long. */
const MOST_OFFSET = 10_000;

/** The paging of one list, whose rows are sorted by the fields `Key`. */
interface Paging<Key extends string> {
  /**
   * The start of the page that the query asks for: behind a row, or at an offset; neither for the first page. Throws
   * `BATCH_IMAGE_INVALID_QUERY`.
   */
  start(request: Request): { after?: Record<Key, number>; offset?: number };
  /** A page of at most `limit` rows. One row more in `found` means that another page follows. */
  page<Row extends Record<Key, number>, View>(
    found: readonly Row[],
    limit: number,
    view: (row: Row) => View,
  ): ListEnvelope<View>;
}

/**
 * Paging by a query parameter. A cursor is opaque to clients: the letter of its list and the fields that a row
 * is sorted by. A plain number, which some clients send, is an offset of at most 10,000.
 */
export function pagingBy<Key extends string>(
  letter: string,
  keys: readonly Key[],
  parameter: "Cursor" | "PageToken" = "Cursor",
): Paging<Key> {
  const nextName = parameter === "Cursor" ? "next_cursor" : "nextPageToken";
  const { name } = PARAMETERS[parameter];
  const pattern = new RegExp(`^${letter}${keys.map(() => "(\\d{1,16})").join("\\.")}$`);
  return {
    start(request) {
      const text = readQuery(request, parameter);
      if (text === undefined) return {};
      if (/^\d+$/.test(text)) {
        const offset = Number(text);
        if (offset <= MOST_OFFSET) return { offset };
        const rule = `must be an offset of at most ${MOST_OFFSET}; further on, send \`${nextName}\` of the page before`;
        throw invalidQuery(name, rule);
      }
      const numbers = pattern.exec(Buffer.from(text, "base64url").toString())?.slice(1).map(Number);
      if (!numbers) throw invalidQuery(name, "must be one that this list gave, or an offset");
      const after = Object.fromEntries(keys.map((key, index) => [key, numbers[index]]));
      return { after: after as Record<Key, number> };
    },
    page(found, limit, view) {
      const rows = found.slice(0, limit);
      const last = rows.at(-1);
      const hasMore = found.length > limit;
      const cursor = last && letter + keys.map((key) => last[key]).join(".");
      return {
        object: "list",
        data: rows.map(view),
        has_more: hasMore,
        next_cursor: hasMore && cursor ? Buffer.from(cursor).toString("base64url") : null,
      };
    },
  };
}

/** Returns the `pageToken` of a list whose tokens are whole numbers; 0 without one. Throws `REALTIME_INVALID_ARGUMENT`. */
export function tokenNumber(request: Request): number {
  const text = readQuery(request, "PageToken") ?? "0";
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw fieldError(invalidAtGoogle, "pageToken", "must be one whole number");
}

/** The body of a list: a page of views, and whether more were found. */
export function listBody(views: readonly object[], found: readonly unknown[]) {
  const data = views as readonly { id: string }[];
  return {
    object: "list",
    data: [...data],
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: found.length > data.length,
  };
}
