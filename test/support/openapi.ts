import { Ajv2020 } from "ajv/dist/2020.js";
import { DEFAULT_LIMITS } from "../../src/contract/limits.ts";
import { IGNORED_HEADER, MAY_BE_PAID_TWICE_HEADER, UPSTREAM_COST_HEADER } from "../../src/contract/routes.ts";
import { buildOpenApi } from "../../src/server/openapi/document.ts";

export interface ApiDocument {
  paths: Record<string, Record<string, DocumentedOperation>>;
  components: { schemas: Record<string, object>; parameters: Record<string, { name: string; in: string }> };
}

export interface DocumentedOperation {
  operationId: string;
  parameters: { $ref: string }[];
  requestBody?: { content: Record<string, { schema: object; example?: unknown }> };
  responses: Record<string, DocumentedAnswer>;
}

interface DocumentedAnswer {
  headers: Record<string, { $ref: string }>;
  content?: Record<
    string,
    { schema: object; example?: unknown; examples?: Record<string, { value: unknown }> }
  >;
}

let shared: DocumentChecker | null = null;

/** The checker of the description with the default limits. It keeps what it has compiled for other files of the worker. */
export function apiChecker(): DocumentChecker {
  shared ??= new DocumentChecker(buildOpenApi(DEFAULT_LIMITS) as unknown as ApiDocument);
  return shared;
}

/** Requests below /v1 with one of these are the vendor's, whose answers are described below /v1beta. */
const VENDORS_KEYS = ["x-vendorx-api-key", "x-goog-api-key"];

/** Described headers that not every answer has. */
const OPTIONAL_HEADERS: readonly string[] = [
  "Idempotency-Replayed",
  "Retry-After",
  "X-Goog-Upload-URL",
  MAY_BE_PAID_TWICE_HEADER,
  UPSTREAM_COST_HEADER,
  IGNORED_HEADER,
];

/** Checks bodies and whole answers against a document, which it takes as exact: an unknown field is an error. */
class DocumentChecker {
  readonly document: ApiDocument;
  // Compiles each part once, and not anew wherever it is named: it checks few values with each.
  readonly #ajv = new Ajv2020({
    ...{ strict: false, allErrors: true, inlineRefs: false, validateSchema: false },
    code: { optimize: false },
  });

  readonly #paths: [path: string, form: RegExp][];

  constructor(document: ApiDocument) {
    this.document = structuredClone(document);
    this.#paths = Object.keys(document.paths).map((path) => [path, formOf(path)]);
    closeObjects(this.document.components.schemas);
    this.#ajv.addSchema(this.document, "api");
  }

  /** The faults of a value, by the schema at a place of the document (`["paths", "/readyz", …]`). */
  problems(place: readonly string[], value: unknown): string[] {
    const parts = place.map((part) => part.replaceAll("~", "~0").replaceAll("/", "~1"));
    const pointer = parts.map(encodeURIComponent).join("/");
    const validate = this.#ajv.getSchema(`api#/${pointer}`);
    if (validate === undefined) return [`${place.join(" ")}: is not described`];
    if (validate(value)) return [];
    return (validate.errors ?? []).map((e) => `${place.join(" ")}: ${e.instancePath} ${e.message}`);
  }

  /**
   * The faults of an answer to a request with these headers: a status, a type or a JSON body that is not described, or no
   * header that is. None where no operation has the path. `json` reads the body; null when there is none, or no JSON.
   */
  async faultsOf(
    request: { method: string; pathname: string; headers: Headers },
    { status, headers }: Pick<Response, "status" | "headers">,
    json: (() => Promise<unknown>) | null,
  ): Promise<string[]> {
    const { method, pathname } = request;
    const path = this.#paths.find(([, form]) => form.test(pathname))?.[0] ?? "";
    const documented = this.document.paths[path]?.[method];
    const isVendors = pathname.startsWith("/v1/") && VENDORS_KEYS.some((name) => request.headers.has(name));
    if (!documented || isVendors) return [];
    const place = ["paths", path, method, "responses", String(status)];
    const described = documented.responses[status];
    if (described === undefined) return [`${place.join(" ")}: is not described`];
    const faults = Object.keys(described.headers)
      .filter((name) => !OPTIONAL_HEADERS.includes(name) && !headers.has(name))
      .map((name) => `${place.join(" ")}: has no ${name}`);
    const type = (headers.get("content-type") ?? "").split(";")[0] ?? "";
    const types = Object.keys(described.content ?? {});
    const hasBody = method !== "head" && status !== 304 && headers.get("content-length") !== "0";
    if (hasBody && type !== "" && !types.includes("*/*") && !types.includes(type))
      return [...faults, `${place.join(" ")}: ${type} is not described`];
    if (json === null) return faults;
    return [...faults, ...this.problems([...place, "content", type, "schema"], await json())];
  }
}

function closeObjects(node: unknown): void {
  if (node === null || typeof node !== "object") return;
  for (const value of Object.values(node)) closeObjects(value);
  if ("properties" in node && !("additionalProperties" in node)) {
    Object.assign(node, { additionalProperties: false });
  }
}

/** The targets of a documented path. A colon ends a parameter, also an encoded one. */
function formOf(path: string): RegExp {
  const words = path.split(/\{\w+\}/).map((part) => part.replace(/[.*+?^$()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${words.join("(?:[^/:%]|%(?!3[aA])[0-9a-fA-F]{2})+")}$`);
}
