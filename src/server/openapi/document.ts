import type { RequestHandler } from "express";
import { ImgbatchError, SERVICE_ERRORS, type ServiceErrorCode } from "../../contract/errors.ts";
import type { Limits } from "../../contract/limits.ts";
import type { Answer } from "../operation.ts";
import { errorStyleOf, errorsOf, OPERATIONS, type PlacedOperation, SURFACES } from "../surfaces.ts";
import examples from "./examples.json" with { type: "json" };
import { componentParameters, RESPONSE_HEADERS } from "./parameters.ts";
import { componentSchemas } from "./schemas.ts";

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
