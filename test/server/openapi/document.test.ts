import { createServer } from "node:http";
import { Validator } from "@seriousme/openapi-schema-validator";
import { describe, expect, it } from "vitest";
import { DEFAULT_LIMITS } from "../../../src/contract/limits.ts";
import { buildOpenApi } from "../../../src/server/openapi/document.ts";
import { OPERATIONS } from "../../../src/server/surfaces.ts";
import { listening } from "../../support/listening.ts";
import { type ApiDocument, apiChecker } from "../../support/openapi.ts";
import { startTestService, type TestService } from "../../support/service.ts";
import { takeFaults, watchAnswers } from "../../support/watched-answers.ts";

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
    const service = await startTestService({ workers: false, isForTests: true });
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

  it("[OPS-3] fits each answer that a test gets from a service: another one is a fault of the test", async () => {
    const answers: [status: number, body: string][] = [
      [200, '{"status":"fine"}'],
      [418, ""],
    ];
    const other = createServer((_, response) => {
      const [status = 500, body] = answers.shift() ?? [];
      response.writeHead(status, { "content-type": "application/json" }).end(body);
    });
    const url = await listening(other);
    const unwatch = watchAnswers(url);
    for (const path of ["/healthz", "/healthz", "/elsewhere"]) await (await fetch(url + path)).text();
    unwatch();
    await (await fetch(`${url}/healthz`)).text();
    const at = "paths /healthz get responses";
    expect(await takeFaults()).toEqual([
      `${at} 200: has no x-request-id`,
      expect.stringContaining(`${at} 200 content application/json schema:`),
      `${at} 418: is not described`,
    ]);
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
