import { Validator } from "@seriousme/openapi-schema-validator";
import { describe, expect, it } from "vitest";
import { DEFAULT_LIMITS } from "../../../src/contract/limits.ts";
import { buildOpenApi } from "../../../src/server/openapi/document.ts";
import { OPERATIONS } from "../../../src/server/surfaces.ts";
import { TEST_STORES } from "../../support/cluster/test-stores.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { type ApiDocument, apiChecker } from "../../support/openapi.ts";
import { items, MODEL, startTestService, type TestService } from "../../support/service.ts";

const BATCHES = "/v1/images/batches";
const BATCH = `${BATCHES}/{id}`;
const CONTENT = `${BATCH}/items/{custom_id}/content`;

const document = buildOpenApi(DEFAULT_LIMITS) as unknown as ApiDocument;

describe("the description of the API", () => {
  it("[OPS-1] is what an independent checker takes as OpenAPI 3.1, and needs no key", async () => {
    const service = await startTestService({ workers: false });
    const answer = await fetch(`${service.url}/openapi.json`);
    expect(answer.headers.get("content-type")).toContain("application/json");
    const served = (await answer.json()) as Record<string, unknown>;
    const validator = new Validator();
    expect(await validator.validate(structuredClone(served))).toEqual({ valid: true });
    expect(validator.version).toBe("3.1");
    expect(served).toEqual(JSON.parse(JSON.stringify(document)));
  });

  it("[OPS-1] points only to parts of itself, and has no part that nothing points to", () => {
    const text = JSON.stringify(document);
    const used = new Set([...text.matchAll(/"#\/components\/(\w+\/\w+)"/g)].map((match) => match[1]));
    const { securitySchemes: _, ...components } = document.components as unknown as Record<string, object>;
    const parts = Object.entries(components).flatMap(([kind, of]) =>
      Object.keys(of).map((k) => `${kind}/${k}`),
    );
    expect([...used].sort()).toEqual(parts.sort());
  });

  it("[OPS-1] has examples that fit their schemas", () => {
    const checker = apiChecker();
    const wrong: string[] = [];
    let seen = 0;
    for (const { path, method, answers } of OPERATIONS) {
      const operation = document.paths[path]?.[method];
      const bodies = [
        { place: ["requestBody"], content: operation?.requestBody?.content },
        ...Object.entries(operation?.responses ?? {}).map(([status, { content }]) => ({
          place: ["responses", status],
          content,
        })),
      ];
      expect(Object.keys(operation?.responses ?? {})).toEqual(expect.arrayContaining(Object.keys(answers)));
      for (const { place, content } of bodies) {
        for (const [type, media] of Object.entries<{ example?: unknown; examples?: object }>(content ?? {})) {
          const examples = Object.values(media.examples ?? {}).map(({ value }) => value);
          if (media.example !== undefined) examples.push(media.example);
          const at = ["paths", path, method, ...place, "content", type, "schema"];
          wrong.push(...examples.flatMap((example) => checker.problems(at, example)));
          seen += examples.length;
        }
      }
    }
    expect(wrong).toEqual([]);
    expect(seen).toBeGreaterThan(50);
  });

  it("agrees with the service about the methods of each path", async () => {
    const service = await startTestService({ workers: false });
    for (const [path, operations] of Object.entries(document.paths)) {
      const answer = await call(service, "PATCH", path.replace(/\{\w+\}/g, "x"));
      const allowed = (answer.headers.get("allow") ?? "").toLowerCase().split(", ");
      const documented = new Set(Object.keys(operations));
      if (documented.has("get")) documented.add("head");
      expect([path, answer.status, allowed.sort()]).toEqual([path, 405, [...documented].sort()]);
      for (const method of documented) {
        const other = await call(service, method.toUpperCase(), path.replace(/\{\w+\}/g, "x"));
        await other.body?.cancel();
        expect([path, method, other.status]).not.toEqual([path, method, 405]);
      }
    }
  });

  it("[OPS-3] fits the answers of a batch's life", async () => {
    const provider = new FakeProvider();
    provider.answer = async ({ prompt }) => made(...(prompt.endsWith("2") ? [] : [await tinyPng()]));
    const service = await startTestService({ providers: [provider] });
    const checker = apiChecker();
    const ask = async (method: string, path: string, url: string, init: RequestInit = {}) => {
      const answer = await call(service, method, url, init);
      await checker.expectConforming(method.toLowerCase(), path, answer);
      return answer;
    };
    const body = JSON.stringify({ model: MODEL, items: items(2), metadata: { project: "x" } });
    const headers = { "idempotency-key": "once" };
    const created = await ask("POST", BATCHES, BATCHES, { body, headers });
    const { id } = (await created.json()) as { id: string };
    const replayed = await ask("POST", BATCHES, BATCHES, { body, headers });
    expect(replayed.headers.get("idempotency-replayed")).toBe("true");
    await service.until(id);
    const url = `${BATCHES}/${id}`;
    const image = `${url}/items/i1/content`;

    const statuses = [];
    for (const [method, path, target, given = {}] of [
      ["GET", `${BATCHES}/models`, `${BATCHES}/models`],
      ["GET", BATCHES, `${BATCHES}?limit=1&downloaded=false`],
      ["GET", BATCH, url],
      ["GET", `${BATCH}/items`, `${url}/items?status=all`],
      ["GET", CONTENT, image],
      ["HEAD", CONTENT, image],
      ["GET", CONTENT, image, { range: "bytes=0-3" }],
      ["GET", CONTENT, image, { range: "bytes=9999999-" }],
      ["GET", CONTENT, image, { "if-none-match": "*" }],
      ["GET", CONTENT, `${url}/items/i2/content`],
      ["GET", `${BATCH}/download`, `${url}/download`],
      ["HEAD", `${BATCH}/download`, `${url}/download?status=all`],
      ["POST", `${BATCH}/cancel`, `${url}/cancel`],
      ["DELETE", `${BATCH}/outputs`, `${url}/outputs`],
      ["GET", CONTENT, image],
      ["DELETE", BATCH, url],
      ["GET", BATCH, url],
      ["GET", "/healthz", "/healthz"],
      ["GET", "/readyz", "/readyz"],
      ["GET", "/metrics", "/metrics"],
      ["GET", "/openapi.json", "/openapi.json"],
    ] as [string, string, string, Record<string, string>?][]) {
      statuses.push((await ask(method, path, target, { headers: given })).status);
    }
    const downloads = [200, 200, 206, 416, 304, 409, 200, 200];
    expect(statuses).toEqual([200, 200, 200, 200, ...downloads, 200, 200, 410, 204, 404, 200, 200, 200, 200]);
  });

  it("[OPS-3] fits the answers about money, small images, retries and sessions", async () => {
    const provider = new FakeProvider();
    provider.answer = async ({ prompt }) => made(...(prompt.endsWith("2") ? [] : [await tinyPng()]));
    const service = await startTestService({ providers: [provider] });
    const checker = apiChecker();
    const data = (await tinyPng()).toString("base64");
    const [first, second] = items(2);
    const reference_images = [{ mime_type: "image/png", data }];
    const { id } = await service.submit({ model: MODEL, items: [{ ...first, reference_images }, second] });
    await service.until(id);
    const url = `${BATCHES}/${id}`;
    const statuses = [];
    for (const [method, path, target, given = {}] of [
      ["GET", "/v1/account", "/v1/account"],
      ["GET", "/v1/usage", "/v1/usage"],
      ["GET", "/v1/ledger", "/v1/ledger?limit=2"],
      ["GET", `${BATCH}/items`, `${url}/items?include=prompt,references,images,retries`],
      ["GET", `${BATCH}/items/{custom_id}/thumbnail`, `${url}/items/i1/thumbnail?width=1024`],
      ["GET", `${BATCH}/items/{custom_id}/thumbnail`, `${url}/items/i1/thumbnail`, { "if-none-match": "*" }],
      ["GET", `${BATCH}/items/{custom_id}/thumbnail`, `${url}/items/i2/thumbnail`],
      ["GET", `${BATCH}/thumbnails`, `${url}/thumbnails?limit=1`],
      ["GET", `${BATCH}/items/{custom_id}/references/{index}`, `${url}/items/i1/references/0`],
      ["POST", `${BATCH}/ticket`, `${url}/ticket`],
      ["GET", "/v1/downloads/{id}", `/v1/downloads/${id}?ticket=none`],
      ["POST", `${BATCH}/retry`, `${url}/retry`],
      ["POST", "/v1/console/codes", "/v1/console/codes"],
      ["POST", "/v1/console/sessions", "/v1/console/sessions"],
      ["GET", "/v1/console/service", "/v1/console/service"],
      ["DELETE", "/v1/console/session", "/v1/console/session"],
    ] as [string, string, string, Record<string, string>?][]) {
      const answer = await call(service, method, target, { headers: given });
      await checker.expectConforming(method.toLowerCase(), path, answer);
      statuses.push(answer.status);
    }
    // With a shared database, no key sees the whole service.
    const whole = TEST_STORES === "local" ? 200 : 403;
    expect(statuses).toEqual([
      200,
      200,
      200,
      200,
      200,
      304,
      409,
      200,
      200,
      200,
      401,
      200,
      200,
      200,
      whole,
      204,
    ]);
  });

  it.each([
    ["createBatch", "POST", BATCHES, BATCHES, { body: "{" }, "INVALID_JSON"],
    ["createBatch", "POST", BATCHES, BATCHES, { body: "{}" }, "BATCH_IMAGE_INVALID_MODEL"],
    ["createBatch", "POST", BATCHES, BATCHES, { body: `{"model":"${MODEL}"}` }, "BATCH_IMAGE_INVALID_ITEMS"],
    ["listBatches", "GET", BATCHES, `${BATCHES}?limit=0`, {}, "BATCH_IMAGE_INVALID_QUERY"],
    ["listItems", "GET", `${BATCH}/items`, `${BATCHES}/x/items`, {}, "BATCH_IMAGE_NOT_FOUND"],
    ["cancelBatch", "POST", `${BATCH}/cancel`, `${BATCHES}/x/cancel`, {}, "BATCH_IMAGE_NOT_FOUND"],
    ["getBatch", "GET", BATCH, `${BATCHES}/x`, { headers: { authorization: "Bearer x" } }, "INVALID_API_KEY"],
  ])("[OPS-3] fits a refusal of %s", async (_id, method, path, url, init, code) => {
    const service = await startTestService({ workers: false });
    const answer = await call(service, method, url, init as RequestInit);
    await apiChecker().expectConforming(method.toLowerCase(), path, answer);
    expect(await answer.json()).toMatchObject({ error: { code } });
  });

  it("tells the limits of the service that serves it", async () => {
    const limits = { itemsPerBatch: 7, promptChars: 99, outputCountPerItem: 2, zipItems: 5 };
    const service = await startTestService({ workers: false, config: { limits } });
    const served = await (await fetch(`${service.url}/openapi.json`)).json();
    const { schemas, parameters } = served.components;
    expect(schemas.CreateBatch.properties.items.maxItems).toBe(7);
    expect(schemas.CreateItem.properties.prompt.maxLength).toBe(99);
    expect(schemas.CreateItem.properties.output_count.maximum).toBe(2);
    expect(parameters.MaxItems.schema).toMatchObject({ maximum: 5, default: 5 });
    expect(parameters.BatchLimit.schema).toMatchObject({ maximum: 100, default: 20 });
  });
});

function call(service: TestService, method: string, url: string, init: RequestInit = {}): Promise<Response> {
  const headers = {
    authorization: `Bearer ${service.credentials.api_key}`,
    "content-type": "application/json",
    ...init.headers,
  };
  return fetch(service.url + url, { ...init, method, headers });
}
