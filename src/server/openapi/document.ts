import type { RequestHandler } from "express";
import { z } from "zod";
import { batchSchemas } from "../../contract/batch-api.ts";
import { consoleSchemas } from "../../contract/console-api.ts";
import { errorType, ImgbatchError, SERVICE_ERRORS, type ServiceErrorCode } from "../../contract/errors.ts";
import { IMAGE_MIME_TYPES } from "../../contract/image-formats.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { nativeSchemas } from "../../contract/native-api.ts";
import { openaiSchemas } from "../../contract/openai-api.ts";
import {
  FAULT_HEADER,
  IGNORED_HEADER,
  MAY_BE_PAID_TWICE_HEADER,
  UPSTREAM_COST_HEADER,
} from "../../contract/routes.ts";
import { ITEM_ERROR_CODES } from "../../contract/statuses.ts";
import { testSchemas } from "../../contract/test-api.ts";
import { PARAMETERS } from "../http/parameters.ts";
import type { Answer } from "../operation.ts";
import { errorStyleOf, errorsOf, OPERATIONS, SURFACES } from "../surfaces.ts";
import examples from "./examples.json" with { type: "json" };

type Described = { [keyword: string]: unknown };

const text = (facts: Described = {}) => ({ type: "string", ...facts });
const choice = (values: readonly string[], facts: Described = {}) => text({ enum: values, ...facts });
const count = (facts: Described) => ({ type: "integer", ...facts });

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
  ...testSchemas,
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

/** Removes what is no rule of the API, but of JavaScript: its largest safe integer. */
function dropSafeRange({ jsonSchema }: { jsonSchema: { minimum?: number; maximum?: number } }): void {
  if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
  if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
}

/** The parameters of all operations, by name, made from the schemas that read them. */
function componentParameters({ zipItems }: Limits): Record<string, JsonSchema> {
  const described = Object.entries(PARAMETERS).map(([id, parameter]) => {
    const { name, in: place, description, schema, fallback } = parameter;
    const { $schema, ...json } = z.toJSONSchema(schema, { io: "input", override: dropSafeRange });
    if (fallback !== undefined) json.default ??= fallback as never;
    if (id === "MaxItems") Object.assign(json, { maximum: zipItems, default: zipItems });
    const required = place === "path" ? { required: true } : {};
    return [id, { name, in: place, ...required, description, schema: json }];
  });
  return Object.fromEntries(described);
}

/** The schemas of all bodies, by name, made from those that the service itself checks with. */
function componentSchemas(limits: Limits): Record<string, JsonSchema> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(COMPONENTS)) registry.add(schema, { id });
  const { schemas } = z.toJSONSchema(registry, {
    // Readers must bear fields that a later version adds, so objects stay open.
    io: "input",
    uri: (id) => `#/components/schemas/${id}`,
    override: dropSafeRange,
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
HEAD works wherever GET does, and returns the same headers.
What stands below \`/imgbatch/test\` is there in \`imgbatch exec\` and \`imgbatch serve --test\` alone. An answer with the header \`${FAULT_HEADER}: true\` is a fault that a test has ordered, and need not be as described here.`;

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
