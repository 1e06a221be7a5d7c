import { ITEM_EXTRAS } from "../../contract/batch-api.ts";
import { CHALLENGE } from "../../contract/data-directory.ts";
import { IMAGE_MIME_TYPES } from "../../contract/image-formats.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { FILE_PURPOSES } from "../../contract/openai-api.ts";
import { IGNORED_HEADER, MAY_BE_PAID_TWICE_HEADER } from "../../contract/routes.ts";
import { BATCH_STATUSES, ITEM_STATUSES } from "../../contract/statuses.ts";

type Described = { [keyword: string]: unknown };

const text = (facts: Described = {}) => ({ type: "string", ...facts });
const choice = (values: readonly string[], facts: Described = {}) => text({ enum: values, ...facts });
const count = (facts: Described) => ({ type: "integer", ...facts });

const at =
  (location: "path" | "query" | "header") =>
  (name: string, description: string, schema: Described = text()) => ({
    name,
    in: location,
    ...(location === "path" ? { required: true } : {}),
    description,
    schema,
  });
const path = at("path");
const query = at("query");
const header = at("header");

/** The parameters of all operations, by the name that the operations give them. */
export function componentParameters(limits: Limits): Record<string, Described> {
  const {
    batchPageDefault,
    batchPageMax,
    itemPageDefault,
    itemPageMax,
    idempotencyKeyChars,
    jobPageDefault,
    jobPageMax,
    thumbnailPageMax,
  } = FIXED_LIMITS;
  const time = text({ examples: ["2030-01-31", "2030-01-31T12:00:00Z", "1896048000"] });
  const { zipItems } = limits;
  return {
    RequestId: header("x-request-id", "Echoed when it is well formed; else the service makes one.", {
      ...text({ pattern: "^[A-Za-z0-9._-]{1,128}$" }),
    }),
    IdempotencyKey: header(
      "Idempotency-Key",
      "Printable ASCII, one for each batch: the same request with the same key is answered with the same batch.",
      text({ minLength: 1, maxLength: idempotencyKeyChars, pattern: "^[\\x20-\\x7e]+$" }),
    ),
    RequestKey: header(
      "Idempotency-Key",
      "Printable ASCII, one for each image: the same request with the same key gets the same answer for 24 hours, and is paid for once.",
      text({ minLength: 1, maxLength: idempotencyKeyChars, pattern: "^[\\x20-\\x7e]+$" }),
    ),
    MaxCost: header(
      "x-imgbatch-max-cost",
      "The most that the request may cost, in US dollars with at most 6 decimals. For the local key and an upstream that costs money: the account is granted what the request holds, or the request is refused. For other keys it has no effect.",
      text({ pattern: "^[0-9]+(\\.[0-9]{1,6})?$", examples: ["1.25"] }),
    ),
    FindOnly: header(
      "x-imgbatch-find-only",
      "`true`: only return the batch that the `Idempotency-Key` made before. If there is none, the answer is 404, and nothing is made.",
      choice(["true"]),
    ),
    BatchId: path("id", "Id of a batch that this key made."),
    CustomId: path("custom_id", "Id of an item, as the item list has it."),
    BatchStatus: query("status", "Only batches of this status.", choice(["all", ...BATCH_STATUSES])),
    TaskName: query("task_name", "Only batches whose name contains this, upper and lower case alike."),
    ProviderName: path("provider", "Name of a configured provider."),
    Provider: query("provider", "Only models that this provider serves, with its prices."),
    Downloaded: query(
      "downloaded",
      "`true` for batches that were downloaded, `false` for the others.",
      choice(["true", "false"]),
    ),
    From: query("from", "Only batches created then or later: RFC 3339, a day of UTC, or Unix seconds.", time),
    To: query("to", "Only batches created then or earlier; a day counts to its end.", time),
    IncludeRetries: query(
      "include",
      `\`retries\`: each batch with its newest retries, at most ${batchPageMax}. A list has a retry elsewhere only if the filter leaves out its first batch.`,
      choice(["retries"]),
    ),
    Lease: query(
      "lease",
      "`true`: the caller says so again every 2 seconds, and the service of another command stops the batch 6 seconds after the last time. A service that stays takes no notice.",
      choice(["true"]),
    ),
    BatchLimit: query("limit", "Batches on a page.", {
      ...count({ minimum: 1, maximum: batchPageMax, default: batchPageDefault }),
    }),
    ItemStatus: query("status", "Only items of this status.", choice(["all", ...ITEM_STATUSES])),
    Include: query("include", "More facts of each item, with commas between them.", {
      ...text({ pattern: `^(${ITEM_EXTRAS.join("|")})(,(${ITEM_EXTRAS.join("|")}))*$` }),
    }),
    ItemLimit: query("limit", "Items on a page.", {
      ...count({ minimum: 1, maximum: itemPageMax, default: itemPageDefault }),
    }),
    Cursor: query(
      "cursor",
      "`next_cursor` of the page before; a plain number is an offset of at most 10,000.",
    ),
    ImageIndex: query(
      "image_index",
      "The index of the image within the item, from 0.",
      count({ minimum: 0, default: 0 }),
    ),
    ImageType: query(
      "mime_type",
      "The type to convert the image into. Default: as the upstream sent it.",
      choice(IMAGE_MIME_TYPES),
    ),
    ThumbnailWidth: query("width", "The side of the square that it fits into, in pixels.", {
      ...choice(["256", "1024"], { default: "256" }),
    }),
    ThumbnailLimit: query("limit", "Items on a page.", {
      ...count({ minimum: 1, maximum: thumbnailPageMax, default: thumbnailPageMax }),
    }),
    ReferenceIndex: path(
      "index",
      "The index of the reference in the item list, from 0.",
      count({ minimum: 0 }),
    ),
    UsageFrom: query("from", "The first day, or a later moment in it; default: 29 days before `to`.", time),
    UsageTo: query("to", "The last day, or an earlier moment in it; default: now.", time),
    Ticket: query("ticket", "A part of the `url` of a ticket: no key is needed with it."),
    LedgerLimit: query("limit", "Entries on a page.", {
      ...count({ minimum: 1, maximum: FIXED_LIMITS.ledgerPageMax, default: FIXED_LIMITS.ledgerPageDefault }),
    }),
    ZipStatus: query("status", "The items of the ZIP: their images, or for `failed` only their errors.", {
      ...choice(["success", "failed", "all"], { default: "success" }),
    }),
    MaxItems: query("max_items", "A ZIP with more items than this is refused, never cut.", {
      ...count({ minimum: 1, maximum: zipItems, default: zipItems }),
    }),
    Challenge: query("challenge", "A fresh random text; `proof` answers it.", {
      ...text({ pattern: CHALLENGE.source }),
    }),
    ReadyFor: query("for", "`work`: whether new batches are taken, too, for which workers must run.", {
      ...choice(["work"]),
    }),
    Range: header("Range", "One range of bytes; several are answered with the whole."),
    IfRange: header("If-Range", "The range only if the ETag still is this one; else the whole."),
    OutputName: path("name", "The last part of the URL in the answer: whoever knows it sees the image."),
    Model: path("model", "Id of a model that this key can use."),
    PageSize: query("pageSize", "Models on a page; a larger number counts as the maximum.", {
      ...count({ minimum: 0, maximum: 1000, default: 50 }),
    }),
    FilePageSize: query("pageSize", "Files on a page; a larger number counts as the maximum.", {
      ...count({ minimum: 0, maximum: FIXED_LIMITS.filePageMax, default: FIXED_LIMITS.filePageDefault }),
    }),
    File: path("file", "Id of a file of this key."),
    UploadId: query("upload_id", "Goes on with an upload; a part of the URL in `X-Goog-Upload-URL`."),
    UploadCommand: header(
      "X-Goog-Upload-Command",
      "`start` begins an upload. With `upload_id`: `upload` brings bytes, `finalize` ends it (both: `upload, finalize`), `query` reports the received size, `cancel` gives up. Absent for a multipart body.",
    ),
    UploadOffset: header("X-Goog-Upload-Offset", "Where the bytes belong. Received ones are skipped.", {
      ...count({ minimum: 0 }),
    }),
    UploadProtocol: header("X-Goog-Upload-Protocol", "Of `start`.", text({ const: "resumable" })),
    UploadFileBytes: header("X-Goog-Upload-Header-Content-Length", "Of `start`: the size of the file.", {
      ...count({ minimum: 0 }),
    }),
    UploadFileType: header("X-Goog-Upload-Header-Content-Type", "Of `start`: the type of the file."),
    PageToken: query("pageToken", "`nextPageToken` of the page before."),
    JobId: path("id", "Id of a batch job that this key made, behind `batches/` in its name."),
    JobPageSize: query("pageSize", "Jobs on a page; a larger number counts as the maximum.", {
      ...count({ minimum: 0, maximum: jobPageMax, default: jobPageDefault }),
    }),
    OpenaiLimit: query("limit", "Entries on a page; a larger number than 100 counts as 100.", {
      ...count({ minimum: 1, maximum: 10_000 }),
    }),
    OpenaiAfter: query("after", "`last_id` of the page before."),
    OpenaiOrder: query("order", "By the time of the upload.", choice(["asc", "desc"], { default: "desc" })),
    OpenaiPurpose: query("purpose", "Only files that were uploaded for this.", {
      ...choice([...FILE_PURPOSES, "batch_output"]),
    }),
    OpenaiBatchId: path("id", "Id of a batch that this key made with this API."),
    RetryCount: header(
      "X-Stainless-Retry-Count",
      "Sent by OpenAI's library. Above 0, a request that equals one of the last 35 minutes gets the batch of that one.",
      count({ minimum: 0 }),
    ),
    Alt: query("alt", "`sse` for events; else one JSON array.", choice(["sse", "json"])),
    IfNoneMatch: header("If-None-Match", "Nothing if the ETag still is this one."),
  };
}

const head = (name: string, description: string, schema: Described = text()) => ({
  name,
  header: { description, schema },
});

/** The headers of responses, by the name that the operations give them. `name` is the one on the wire. */
export const RESPONSE_HEADERS: Record<string, ReturnType<typeof head>> = {
  RequestId: head("x-request-id", "Quote it when you report a problem."),
  IdempotencyReplayed: head(
    "Idempotency-Replayed",
    "`true` when this is an earlier batch.",
    text({ const: "true" }),
  ),
  RequestReplayed: head(
    "Idempotency-Replayed",
    "With an `Idempotency-Key`: whether this answer was given before.",
    choice(["true", "false"]),
  ),
  MayBePaidTwice: head(
    MAY_BE_PAID_TWICE_HEADER,
    "An upstream may have been paid for an earlier run of the request, too.",
    text({ const: "true" }),
  ),
  Ignored: head(IGNORED_HEADER, "The fields of the request that have no effect, with commas between them."),
  RetryAfter: head("Retry-After", "Seconds to wait.", count({ minimum: 0 })),
  UploadStatus: head("X-Goog-Upload-Status", "On errors, too.", choice(["active", "final", "cancelled"])),
  UploadUrl: head(
    "X-Goog-Upload-URL",
    "In the answer to `start`: the bytes go there.",
    text({ format: "uri" }),
  ),
  UploadReceived: head(
    "X-Goog-Upload-Size-Received",
    "Bytes of a resumable upload that have come.",
    count({ minimum: 0 }),
  ),
  ContentLength: head("Content-Length", "Size in bytes.", count({ minimum: 0 })),
  ContentDisposition: head("Content-Disposition", "A safe name for the file."),
  ContentRange: head("Content-Range", "The range of bytes, and the size of the whole."),
  ETag: head("ETag", "Strong: changes whenever a byte does."),
  AcceptRanges: head("Accept-Ranges", "Ranges are answered.", text({ const: "bytes" })),
  CacheControl: head("Cache-Control", "Only the caller may keep it."),
  NoSniff: head("X-Content-Type-Options", "The type is the one named.", text({ const: "nosniff" })),
};
