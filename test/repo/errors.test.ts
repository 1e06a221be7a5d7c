import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { SERVICE_ERRORS, type ServiceErrorCode } from "../../src/contract/errors.ts";
import { DEFAULT_LIMITS } from "../../src/contract/limits.ts";
import { buildOpenApi } from "../../src/server/openapi/document.ts";
import { errorsOf, OPERATIONS } from "../../src/server/surfaces.ts";
import type { ApiDocument } from "../support/openapi.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const reference = readFileSync(join(ROOT, "src/server/README.md"), "utf8");
const CODES = Object.keys(SERVICE_ERRORS) as ServiceErrorCode[];

/** Codes that nothing answers yet, and what they are kept for. */
const RESERVED: Partial<Record<ServiceErrorCode, string>> = {};

/** Codes that belong to no operation of the description. */
const WITHOUT_OPERATION: Partial<Record<ServiceErrorCode, string>> = {
  ...RESERVED,
  METHOD_NOT_ALLOWED: "answered where there is no operation",
  MALFORMED_REQUEST: "answered before it is known which operation is meant",
  REQUEST_HEADERS_TOO_LARGE: "answered before it is known which operation is meant",
  BATCH_IMAGE_PROVIDER_SUBMIT_FAILED:
    "told as the error of a failed batch, since batches are submitted later",
};

describe("the table of errors in the API reference", () => {
  const rows = [...reference.matchAll(/^\| `([A-Z_]+)` \| (\d{3}) \| (.+) \| (.+) \|$/gm)];

  it("[OPS-9] has every code of the catalogue with its status, in its order, and no other", () => {
    const listed = rows.map(([, code, status]) => `${code} ${status}`);
    expect(listed).toEqual(CODES.map((code) => `${code} ${SERVICE_ERRORS[code].httpStatus}`));
  });

  it("[OPS-9] says when each happens and what to do", () => {
    const empty = rows.filter(([, , , when = "", then = ""]) => when.length < 10 || then.length < 5);
    expect(empty.map(([, code]) => code)).toEqual([]);
  });
});

describe("the table of operations in the API reference", () => {
  const rows = [...reference.matchAll(/^\| (GET|POST|DELETE) \| `([^`]+)` \| (.+) \| (.*)\|$/gm)];
  const described = OPERATIONS.filter(({ method }) => method !== "head");

  it("has every operation of the description, and no other", () => {
    const listed = rows.map(([, method, path]) => `${method} ${path}`);
    expect(listed.sort()).toEqual(described.map((o) => `${o.method.toUpperCase()} ${o.path}`).sort());
  });

  it("names the query parameters and headers of each", () => {
    const { components } = buildOpenApi(DEFAULT_LIMITS) as unknown as ApiDocument;
    const { parameters } = components;
    for (const { method, path, parameters: ids = [] } of described) {
      const row = rows.find(([, m, p]) => m === method.toUpperCase() && p === path);
      const listed = [...(row?.[4] ?? "").replace(/\(.*?\)/g, "").matchAll(/`([^`]+)`/g)].map(
        (match) => match[1],
      );
      const named = ids.map((id) => parameters[id]).filter((parameter) => parameter?.in !== "path");
      expect([path, listed.sort()]).toEqual([path, named.map((parameter) => parameter?.name).sort()]);
    }
  });
});

describe("the catalogue of errors", () => {
  it("has only codes that the service answers, or keeps for a reason", () => {
    const unused = CODES.filter((code) => !isAnswered(code));
    expect(unused).toEqual(Object.keys(RESERVED));
  });

  it("is used up by the operations of the description", () => {
    const documented = new Set(OPERATIONS.flatMap(errorsOf));
    const missing = CODES.filter((code) => !documented.has(code));
    expect(missing.sort()).toEqual(Object.keys(WITHOUT_OPERATION).sort());
  });
});

const sources = ["domain", "server", "storage", "workers"].flatMap((layer) =>
  readdirSync(join(ROOT, "src", layer), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts") && !name.startsWith("openapi"))
    .map((name) => readFileSync(join(ROOT, "src", layer, name), "utf8")),
);

/** Whether some line throws the code, or writes it into a batch that has failed. */
function isAnswered(code: ServiceErrorCode): boolean {
  const use = new RegExp(`(?:new ImgbatchError|fieldError|return)[ (]\\s*"${code}"|[?:] "${code}"`);
  return sources.some((text) => use.test(text));
}
