import type { RequestHandler } from "express";
import { z } from "zod";
import { batchSchemas, ITEM_EXTRAS } from "../../contract/batch-api.ts";
import { consoleSchemas } from "../../contract/console-api.ts";
import { CHALLENGE } from "../../contract/data-directory.ts";
import { errorType, ImgbatchError, SERVICE_ERRORS, type ServiceErrorCode } from "../../contract/errors.ts";
import { IMAGE_MIME_TYPES } from "../../contract/image-formats.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { nativeSchemas } from "../../contract/native-api.ts";
import { FILE_PURPOSES, openaiSchemas } from "../../contract/openai-api.ts";
import { IGNORED_HEADER, MAY_BE_PAID_TWICE_HEADER, UPSTREAM_COST_HEADER } from "../../contract/routes.ts";
import { BATCH_STATUSES, ITEM_ERROR_CODES, ITEM_STATUSES } from "../../contract/statuses.ts";
import type { Answer } from "../operation.ts";
import { errorStyleOf, errorsOf, OPERATIONS, SURFACES } from "../surfaces.ts";
import examples from "./examples.json" with { type: "json" };

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
function componentParameters(limits: Limits): Record<string, Described> {
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
    Early: query(
      "early",
      "Also an image whose batch has not ended. Default: such a request is 409 `BATCH_IMAGE_NOT_READY`.",
      choice(["true"]),
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
const RESPONSE_HEADERS: Record<string, ReturnType<typeof head>> = {
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
  UpstreamCost: head(
    UPSTREAM_COST_HEADER,
    "US dollars: what upstreams billed for the images, where they report it.",
    text(),
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

type Schema = { [keyword: string]: unknown };

/**
 * Rules that the schemas of the contract leave to later checks (lengths, limits, defaults), as `Schema.field` → keywords.
 * A keyword for strings does not apply to null, so optional fields may have it too.
 */
function factsOf(limits: Limits): Record<string, Schema> {
  const { customIdChars, metadataPairs, metadataKeyChars, metadataValueChars } = FIXED_LIMITS;
  const mib = (bytes: number) => `${Math.floor(bytes / 1024 / 1024)} MiB`;
  return {
    "CreateBatch.model": { minLength: 1, description: "an id of the batch model list" },
    "CreateBatch.task_name": {
      description: `cut to ${FIXED_LIMITS.taskNameChars} characters; when absent, the time of creation`,
    },
    "CreateBatch.parent_batch_id": {
      description: "the batch whose failed items this one retries; its first ancestor is what is linked",
    },
    "CreateBatch.items": { maxItems: limits.itemsPerBatch },
    "CreateBatch.response_mime_type": { enum: [...IMAGE_MIME_TYPES, null], default: "image/png" },
    "CreateBatch.aspect_ratio": { description: "accepted, without effect" },
    "CreateBatch.image_size": { enum: ["1K", null], default: "1K" },
    "CreateBatch.metadata": {
      maxProperties: metadataPairs,
      description: `at most ${metadataPairs} pairs; names to ${metadataKeyChars}, values to ${metadataValueChars} characters`,
    },
    "CreateItem.custom_id": {
      minLength: 1,
      maxLength: customIdChars,
      description:
        "unique in the batch, without control characters, `/` and `\\`; when absent `item_000001` and so on",
    },
    "CreateItem.prompt": { minLength: 1, maxLength: limits.promptChars },
    "CreateItem.output_count": {
      minimum: 1,
      maximum: limits.outputCountPerItem,
      default: 1,
      description: `more than one makes items \`<custom_id>_01\`, \`_02\`, …; a batch makes at most ${limits.outputImagesPerBatch} images`,
    },
    "CreateItem.reference_images": {
      description: `how many is up to the model; the image keeps the ratio of the first; ${limits.referenceImagesPerBatch} images and ${mib(limits.referenceBytesPerBatch)} in the whole batch`,
    },
    "ReferenceImage.id": { maxLength: FIXED_LIMITS.referenceIdChars },
    "ReferenceImage.type": { maxLength: FIXED_LIMITS.referenceTypeChars, description: "what it is for" },
    "ReferenceImage.mime_type": { enum: IMAGE_MIME_TYPES },
    "ReferenceImage.data": {
      contentEncoding: "base64",
      description: `standard Base64 without a data URL prefix, at most ${mib(limits.referenceImageBytes)} when decoded`,
    },
    "GenerateContent.contents": {
      maxItems: FIXED_LIMITS.realtimeEntries,
      description: `at most ${FIXED_LIMITS.realtimeEntries} parts in all of them together`,
    },
    "Item.mime_type": { description: "the type of the stored image; null until there is one" },
    "Item.image_count": { minimum: 0 },
    "Item.error": { description: `set when failed; \`code\` is one of ${ITEM_ERROR_CODES.join(", ")}` },
  };
}

/** Adds the rules to the schemas. Throws when a rule names a field that does not exist. */
function addFieldRules(schemas: Record<string, Schema>, limits: Limits): Record<string, Schema> {
  for (const [path, facts] of Object.entries(factsOf(limits))) {
    const [name = "", field = ""] = path.split(".");
    const properties = schemas[name]?.properties as Record<string, Schema> | undefined;
    const property = properties?.[field];
    if (!property) throw new Error(`no field ${path}`);
    Object.assign(property, facts);
  }
  return schemas;
}

type JsonSchema = { [keyword: string]: unknown };

const CODES = Object.keys(SERVICE_ERRORS) as ServiceErrorCode[];
const TYPES = [...new Set(CODES.map((code) => errorType(SERVICE_ERRORS[code].httpStatus)))];

const errorSchema = z.object({
  error: z.object({
    type: z.enum(TYPES),
    code: z.enum(CODES).describe("decide by this, never by the message"),
    message: z.string(),
    param: z.string().optional().describe("the field, parameter or header at fault, when it is one"),
  }),
});

const COMPONENTS: Record<string, z.ZodType> = {
  ...batchSchemas,
  ...consoleSchemas,
  ...nativeSchemas,
  ...openaiSchemas,
  Error: errorSchema,
  Empty: z.object({}),
  Health: z.object({
    status: z.literal("ok"),
    proof: z
      .string()
      .optional()
      .describe(
        "the proof for a challenge: a reader of the data directory can check that this is its service",
      ),
  }),
  Readiness: z.object({ status: z.enum(["ready", "not_ready"]), problems: z.array(z.string()) }),
  OpenApi: z.looseObject({ openapi: z.string(), info: z.looseObject({}), paths: z.looseObject({}) }),
};

/** The schemas of all bodies, by name, made from those that the service itself checks with. */
function componentSchemas(limits: Limits): Record<string, JsonSchema> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(COMPONENTS)) registry.add(schema, { id });
  const { schemas } = z.toJSONSchema(registry, {
    // Readers must bear fields that a later version adds, so objects stay open.
    io: "input",
    uri: (id) => `#/components/schemas/${id}`,
    override: ({ jsonSchema }) => {
      // The largest safe integer of JavaScript is not a rule of the API.
      if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
    },
  });
  const bare = Object.entries(schemas).map(([name, { $schema, $id, ...schema }]) => [name, schema]);
  return addFieldRules(Object.fromEntries(bare), limits);
}

/** An operation together with its surface. */
type PlacedOperation = (typeof OPERATIONS)[number];

type Json = { [name: string]: unknown };

const DESCRIPTION = `Makes images in batches, and one at a time in real time. Send \`Authorization: Bearer <key>\`; every batch is seen only by the key that made it.
Poll a batch until its status is \`completed\`, \`failed\`, \`cancelled\` or \`output_deleted\`, then fetch the ZIP or single images.
The real-time API and its files take the key in the vendor's header (\`x-vendorx-api-key\` unless configured), as \`Authorization: Bearer\`, in \`x-api-key\`, or below \`/v1beta\` and \`/upload/v1beta\` in the query as \`key\`: the first one present counts.
Their fields may be written in snake_case, too. What stands below \`/v1beta\` is also found below \`/v1\` by requests with the vendor's header; a verb of a model by all others, too.
Paths are exact. An unknown path is \`NOT_FOUND\` (404), a wrong method \`METHOD_NOT_ALLOWED\` (405, with \`Allow\`).
HEAD works wherever GET does, and returns the same headers.`;

/** `GET /openapi.json`. The document is made at the first request. */
export function openApi(limits: Limits): RequestHandler {
  let text: string | undefined;
  return (_request, response) => {
    text ??= JSON.stringify(buildOpenApi(limits));
    response.type("json").send(text);
  };
}

/** The OpenAPI 3.1 document of a service with these limits. */
export function buildOpenApi(limits: Limits): Json {
  const paths: Record<string, Json> = {};
  for (const operation of OPERATIONS) {
    paths[operation.path] = { ...paths[operation.path], [operation.method]: describe(operation) };
  }
  const headers = Object.entries(RESPONSE_HEADERS).map(([id, { header }]) => [id, header]);
  return {
    openapi: "3.1.0",
    info: {
      title: "imgbatch",
      version: "1",
      description: DESCRIPTION,
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: "/" }],
    tags: [...new Set(SURFACES.map(({ tag }) => tag))].map((name) => ({ name })),
    paths,
    components: {
      securitySchemes: {
        apiKey: { type: "http", scheme: "bearer" },
        headerKey: { type: "apiKey", in: "header", name: "x-api-key" },
        queryKey: { type: "apiKey", in: "query", name: "key" },
        signInCode: { type: "http", scheme: "bearer" },
        uploadId: { type: "apiKey", in: "query", name: "upload_id" },
      },
      schemas: componentSchemas(limits),
      parameters: componentParameters(limits),
      headers: Object.fromEntries(headers),
    },
  };
}

function describe(operation: PlacedOperation): Json {
  const { id, summary, surface, parameters = [] } = operation;
  return {
    operationId: id,
    summary,
    tags: [surface.tag],
    security: surface.credential?.schemes.map((scheme) => ({ [scheme]: [] })) ?? [],
    parameters: [...parameters, "RequestId"].map((name) => ({ $ref: `#/components/parameters/${name}` })),
    ...requestBodyOf(operation),
    responses: { ...answersOf(operation), ...refusalsOf(operation) },
  };
}

function requestBodyOf({ body, isBodyOptional, bytesBody = [], formBody }: PlacedOperation): Json {
  if (body === undefined && formBody === undefined) return {};
  const binary = bytesBody.map((type) => [type, { schema: bytesOf(type) }]);
  const form = formBody === undefined ? {} : { "multipart/form-data": { schema: refTo(formBody) } };
  const json = body === undefined ? {} : jsonContent(body);
  const content = { ...json, ...form, ...Object.fromEntries(binary) };
  // A body of bytes may be missing: a step of an upload may have none.
  return { requestBody: { required: bytesBody.length === 0 && !isBodyOptional, content } };
}

function answersOf({ answers }: PlacedOperation): Json {
  const described = Object.entries(answers).map(([status, answer]) => [status, describeAnswer(answer)]);
  return Object.fromEntries(described);
}

function describeAnswer({ description, schema, streamOf, eventsOf, bytes = [], headers = [] }: Answer): Json {
  const binary = Object.fromEntries(bytes.map((type) => [type, { schema: bytesOf(type) }]));
  const content =
    streamOf !== undefined ? streamContent(streamOf) : schema === undefined ? binary : jsonContent(schema);
  return {
    description,
    headers: headersOf([...headers, "RequestId"]),
    ...(Object.keys(content).length === 0 ? {} : { content: { ...content, ...eventContent(eventsOf) } }),
  };
}

const bytesOf = (type: string) =>
  type.startsWith("text/") ? { type: "string" } : { type: "string", format: "binary" };

/** A response for each status of the codes, with exactly those codes. The response to a `HEAD` has no body. */
function refusalsOf(operation: PlacedOperation): Json {
  const byStatus = new Map<number, ServiceErrorCode[]>();
  for (const code of errorsOf(operation)) {
    const { httpStatus } = SERVICE_ERRORS[code];
    byStatus.set(httpStatus, [...(byStatus.get(httpStatus) ?? []), code]);
  }
  const described = [...byStatus].map(([status, codes]) => [
    status,
    {
      description: codes.map((code) => `\`${code}\`: ${SERVICE_ERRORS[code].message}`).join("\n"),
      headers: headersOf(status === 429 ? ["RetryAfter", "RequestId"] : ["RequestId"]),
      ...(operation.method === "head" ? {} : { content: errorContent(codes, operation.path) }),
    },
  ]);
  return Object.fromEntries(described);
}

function errorContent(codes: readonly ServiceErrorCode[], path: string): Json {
  const style = errorStyleOf(path);
  const examples = codes.map((code) => [code, { value: style.body(new ImgbatchError(code)) }]);
  return { "application/json": { schema: style.schema(codes), examples: Object.fromEntries(examples) } };
}

/** The example of a body, by the name of its schema; undefined for most. */
const exampleOf = (schema: string) => (examples as Record<string, unknown>)[schema];

const refTo = (schema: string) => ({ $ref: `#/components/schemas/${schema}` });

function eventContent(schema: string | undefined): Json {
  if (schema === undefined) return {};
  const example = exampleOf(schema);
  return { "text/event-stream": { schema: refTo(schema), ...(example === undefined ? {} : { example }) } };
}

function streamContent(schema: string): Json {
  return {
    "text/event-stream": { schema: { type: "string" } },
    "application/json": { schema: { type: "array", items: refTo(schema) } },
  };
}

function jsonContent(schema: string): Json {
  const example = exampleOf(schema);
  return {
    "application/json": {
      schema: refTo(schema),
      ...(example === undefined ? {} : { example }),
    },
  };
}

function headersOf(ids: readonly string[]): Json {
  const entries = ids.map((id) => [RESPONSE_HEADERS[id]?.name ?? id, { $ref: `#/components/headers/${id}` }]);
  return Object.fromEntries(entries);
}
