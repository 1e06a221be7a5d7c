import { Ajv2020 } from "ajv/dist/2020.js";
import { expect } from "vitest";
import { DEFAULT_LIMITS } from "../../src/contract/limits.ts";
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

/**
 * Expects answers to be as the description of the API says, and notes their statuses. `expectFit` returns the JSON of the
 * answer; null when it has none.
 */
export function fitChecker() {
  const checker = apiChecker();
  const statuses: number[] = [];
  const expectFit = async <T>(method: string, path: string, answer: Response): Promise<T> => {
    await checker.expectConforming(method, path, answer);
    statuses.push(answer.status);
    return (await answer.json().catch(() => null)) as T;
  };
  return { statuses, expectFit };
}

/** Checks bodies and whole answers against a document, which it takes as exact: an unknown field is an error. */
class DocumentChecker {
  readonly document: ApiDocument;
  // Compiles each part once, and not anew wherever it is named: it checks few values with each.
  readonly #ajv = new Ajv2020({
    ...{ strict: false, allErrors: true, inlineRefs: false, validateSchema: false },
    code: { optimize: false },
  });

  constructor(document: ApiDocument) {
    this.document = structuredClone(document);
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

  /** Fails the test unless the answer has a documented status, its headers, a documented type and a body that fits. */
  async expectConforming(method: string, path: string, answer: Response): Promise<void> {
    const place = ["paths", path, method, "responses", String(answer.status)];
    const documented = this.document.paths[path]?.[method]?.responses[answer.status];
    expect(documented, place.join(" ")).toBeDefined();
    for (const name of Object.keys(documented?.headers ?? {})) {
      const isOptional = ["Idempotency-Replayed", "X-Goog-Upload-URL"].includes(name);
      if (!isOptional) expect(answer.headers.get(name), `${place.join(" ")}: ${name}`).not.toBeNull();
    }
    const bytes = Buffer.from(await answer.clone().arrayBuffer());
    const type = (answer.headers.get("content-type") ?? "").split(";")[0] ?? "";
    if (documented?.content === undefined) return expect(bytes.length, place.join(" ")).toBe(0);
    const types = Object.keys(documented.content);
    if (!types.includes("*/*")) expect(types, place.join(" ")).toContain(type);
    if (type === "application/json") {
      expect(this.problems([...place, "content", type, "schema"], JSON.parse(String(bytes)))).toEqual([]);
    }
  }
}

function closeObjects(node: unknown): void {
  if (node === null || typeof node !== "object") return;
  for (const value of Object.values(node)) closeObjects(value);
  if ("properties" in node && !("additionalProperties" in node)) {
    Object.assign(node, { additionalProperties: false });
  }
}
