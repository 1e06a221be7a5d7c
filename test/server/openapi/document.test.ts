import { Validator } from "@seriousme/openapi-schema-validator";
import { describe, expect, it } from "vitest";
import { DEFAULT_LIMITS } from "../../../src/contract/limits.ts";
import { buildOpenApi } from "../../../src/server/openapi/document.ts";
import { OPERATIONS } from "../../../src/server/surfaces.ts";
import { TEST_STORES } from "../../support/cluster/test-stores.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { ask, create, ended, jsonl, line, sendFile } from "../../support/openai-batches.ts";
import { edit, form, generate, imagesOf } from "../../support/openai-images.ts";
import { type ApiDocument, apiChecker, fitChecker } from "../../support/openapi.ts";
import { content, generate as generateNative } from "../../support/realtime.ts";
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

it("[OPS-3] the description fits the answers and refusals of the real-time API", async () => {
  const service = await startTestService({ workers: false });
  const { statuses, expectFit } = fitChecker();
  const get = (path: string, key = service.credentials.api_key) =>
    fetch(service.url + path, { headers: { authorization: `Bearer ${key}` } });
  for (const prefix of ["/v1beta", "/v1"]) {
    const one = `${prefix}/models/{model}`;
    await expectFit("get", `${prefix}/models`, await get(`${prefix}/models?pageSize=1`));
    await expectFit("get", `${prefix}/models`, await get(`${prefix}/models`, "wrong"));
    await expectFit("get", one, await get(`${prefix}/models/${MODEL}`));
    await expectFit("get", one, await get(`${prefix}/models/nope`));
    // The verbs are described once, below /v1beta.
    const verbs = "/v1beta/models/{model}";
    await expectFit(
      "post",
      `${verbs}:generateContent`,
      await generateNative(service, content("x"), { prefix }),
    );
    await expectFit(
      "post",
      `${verbs}:generateContent`,
      await generateNative(service, content(""), { prefix }),
    );
    for (const verb of ["streamGenerateContent?alt=sse", "streamGenerateContent"]) {
      const answer = await generateNative(service, content("x"), { prefix, verb });
      await expectFit("post", `${verbs}:streamGenerateContent`, answer);
    }
  }
  const each = [200, 401, 200, 404, 200, 400, 200, 200];
  expect(statuses).toEqual([...each, ...each]);
});

it("[OPS-3] the description fits the answers and refusals of OpenAI's files and batches", async () => {
  const service = await startTestService();
  const { statuses, expectFit } = fitChecker();
  const lines = jsonl([line("a", "x"), line("b", "")]);
  const { id } = await expectFit<{ id: string }>("post", "/v1/files", await sendFile(service, lines));
  await expectFit("post", "/v1/files", await sendFile(service, "x", []));
  await expectFit("get", "/v1/files", await ask(service, "files?limit=5&order=asc&purpose=batch"));
  await expectFit("get", "/v1/files", await ask(service, "files?order=up"));
  await expectFit("get", "/v1/files", await ask(service, "files", { key: "wrong" }));
  await expectFit("get", "/v1/files/{file}", await ask(service, `files/${id}`));
  await expectFit("get", "/v1/files/{file}", await ask(service, "files/none"));
  await expectFit("get", "/v1/files/{file}/content", await ask(service, "files/none/content"));
  const answer = await create(service, { input_file_id: id });
  const created = await expectFit<{ id: string }>("post", "/v1/batches", answer);
  await expectFit("post", "/v1/batches", await create(service, { input_file_id: "none" }));
  const batch = await ended(service, created);
  await expectFit("get", "/v1/batches/{id}", await ask(service, `batches/${batch.id}`));
  await expectFit("get", "/v1/batches/{id}", await ask(service, "batches/none"));
  await expectFit("get", "/v1/batches", await ask(service, "batches?limit=1"));
  await expectFit("get", "/v1/batches", await ask(service, "batches?after=none"));
  const cancel = (which: string) => ask(service, `batches/${which}/cancel`, { method: "POST" });
  await expectFit("post", "/v1/batches/{id}/cancel", await cancel(batch.id));
  await expectFit("post", "/v1/batches/{id}/cancel", await cancel("none"));
  const content = await ask(service, `files/${batch.output_file_id}/content`, {
    headers: { range: "bytes=0-9" },
  });
  await expectFit("get", "/v1/files/{file}/content", content);
  await expectFit("get", "/v1/files/{file}", await ask(service, `files/${batch.error_file_id}`));
  await expectFit("delete", "/v1/files/{file}", await ask(service, `files/${id}`, { method: "DELETE" }));
  await expectFit("delete", "/v1/files/{file}", await ask(service, `files/${id}`, { method: "DELETE" }));
  expect(statuses).toEqual([
    ...[200, 400, 200, 400, 401, 200, 404, 404, 200, 400, 200, 404, 200, 400, 200, 404, 206, 200, 200, 404],
  ]);
});

const GENERATIONS = "/v1/images/generations";
const EDITS = "/v1/images/edits";
const OUTPUT = "/v1/images/outputs/{name}";

it("[OPS-3] the description fits the answers and refusals of OpenAI's API for images", async () => {
  const service = await startTestService({ workers: false });
  const { statuses, expectFit } = fitChecker();
  const png = await tinyPng();
  const images = [{ image_url: `data:image/png;base64,${png.toString("base64")}` }];
  await expectFit("post", GENERATIONS, await generate(service, { prompt: "x", n: 2 }));
  await expectFit("post", GENERATIONS, await generate(service, { prompt: "x", stream: true }));
  await expectFit("post", GENERATIONS, await generate(service, { prompt: "" }));
  await expectFit("post", GENERATIONS, await generate(service, { prompt: "x", model: "nope" }));
  await expectFit("post", GENERATIONS, await generate(service, "{"));
  const wrong = { headers: { authorization: "Bearer wrong" } };
  await expectFit("post", GENERATIONS, await generate(service, { prompt: "x" }, wrong));
  await expectFit("post", EDITS, await edit(service, form(["prompt", "x"], ["image", png])));
  await expectFit("post", EDITS, await edit(service, { prompt: "x", images }));
  await expectFit("post", EDITS, await edit(service, form(["prompt", "x"])));
  await expectFit("post", EDITS, await edit(service, "x", { headers: { "content-type": "text/plain" } }));
  const { data } = await imagesOf(await generate(service, { prompt: "x", response_format: "url" }));
  const url = data[0]?.url ?? "";
  const etag = (await fetch(url, { method: "HEAD" })).headers.get("etag") ?? "";
  await expectFit("get", OUTPUT, await fetch(url));
  await expectFit("get", OUTPUT, await fetch(url, { headers: { range: "bytes=0-3" } }));
  await expectFit("get", OUTPUT, await fetch(url, { headers: { "if-none-match": etag } }));
  await expectFit("get", OUTPUT, await fetch(url, { headers: { range: "bytes=999999-" } }));
  await expectFit("get", OUTPUT, await fetch(`${service.url}/v1/images/outputs/nope`));
  expect(statuses).toEqual([200, 200, 400, 404, 400, 401, 200, 200, 400, 415, 200, 206, 304, 416, 404]);
});
