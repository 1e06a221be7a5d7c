import type { Request, Response } from "express";
import { describe, expect, it } from "vitest";
import { readTarget } from "../../../src/server/http/host.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { errorOf, refusalOf } from "../../support/realtime.ts";
import { MODEL, otherKey, startTestService, type TestService } from "../../support/service.ts";
import { start as startUpload, upload } from "../../support/uploads.ts";

const start = (config: object = {}) => startTestService({ workers: false, config });

async function statusOf(service: TestService, path: string, headers: Record<string, string> = {}) {
  const answer = await fetch(service.url + path, { headers });
  await answer.arrayBuffer();
  return answer.status;
}

describe("the key of a real-time request", () => {
  it("[RT-1] is read from the vendor's header, Authorization, x-api-key, and the query below /v1beta", async () => {
    const service = await start();
    const key = service.credentials.api_key;
    for (const path of ["/v1beta/models", "/v1/models", `/v1beta/models/${MODEL}`]) {
      expect(await statusOf(service, path, { "x-vendorx-api-key": key })).toBe(200);
      expect(await statusOf(service, path, { authorization: `Bearer ${key}` })).toBe(200);
      expect(await statusOf(service, path, { "x-api-key": key })).toBe(200);
      expect(await statusOf(service, `${path}?key=${key}`)).toBe(path.startsWith("/v1beta") ? 200 : 401);
      expect(await statusOf(service, path)).toBe(401);
    }
  });

  it("[RT-1] counts in that order: a wrong one that comes first is not passed over", async () => {
    const service = await start();
    const key = service.credentials.api_key;
    const all = { "x-vendorx-api-key": key, authorization: `Bearer ${key}`, "x-api-key": key };
    const wrong = { "x-vendorx-api-key": "no", authorization: "Bearer no", "x-api-key": "no" };
    const names = Object.keys(all) as (keyof typeof all)[];
    for (const [i, name] of names.entries()) {
      const rest = Object.fromEntries(names.slice(i).map((n) => [n, n === name ? all[n] : wrong[n]]));
      expect(await statusOf(service, "/v1beta/models?key=no", rest)).toBe(200);
      const broken = Object.fromEntries(names.slice(i).map((n) => [n, n === name ? wrong[n] : all[n]]));
      expect(await statusOf(service, `/v1beta/models?key=${key}`, broken)).toBe(401);
    }
    expect(await statusOf(service, `/v1beta/models?key=${key}`, { authorization: "Basic eA==" })).toBe(401);
    expect(await statusOf(service, `/v1beta/models?key=${key}&key=${key}`)).toBe(401);
  });

  it("[RT-1] may come in headers that the operator names, and no longer in others", async () => {
    const service = await start({ vendor: { keyHeaders: ["x-goog-api-key", "api-key"] } });
    const key = service.credentials.api_key;
    expect(await statusOf(service, "/v1beta/models", { "x-goog-api-key": key })).toBe(200);
    expect(await statusOf(service, "/v1beta/models", { "api-key": key })).toBe(200);
    expect(await statusOf(service, "/v1beta/models", { "x-goog-api-key": "no", "api-key": key })).toBe(401);
    expect(await statusOf(service, "/v1beta/models", { "x-vendorx-api-key": key })).toBe(401);
  });

  it("[RT-1] must be of a group of the native platform", async () => {
    const groups = [{ name: "default" }, { name: "foreign", platform: "other" }];
    const service = await start({ groups });
    const { key } = await otherKey(service, { group: "foreign" });
    for (const path of ["/v1beta/models", `/v1beta/models/${MODEL}:generateContent`, "/v1/models"]) {
      const answer = await fetch(service.url + path, { headers: { "x-vendorx-api-key": key } });
      expect(await refusalOf(answer)).toEqual([400, "INVALID_ARGUMENT", "key"]);
    }
  });

  it("[AUTH-5] that is wrong counts for the limit of wrong keys, which both APIs share", async () => {
    const config = { limits: { failedAuthPerMinute: 2 } };
    const service = await startTestService({ workers: false, config, clock: new FakeClock() });
    const headers = { "x-vendorx-api-key": "guess" };
    expect(await statusOf(service, "/v1beta/models")).toBe(401);
    expect(await statusOf(service, "/v1beta/models", headers)).toBe(401);
    expect(await statusOf(service, "/v1/images/batches/models", { authorization: "Bearer x" })).toBe(401);
    const answer = await fetch(`${service.url}/v1beta/models`, { headers });
    expect([answer.status, answer.headers.get("retry-after")]).toEqual([429, "60"]);
    expect((await errorOf(answer)).details).toContainEqual({
      "@type": "type.googleapis.com/google.rpc.RetryInfo",
      retryDelay: "60s",
    });
    expect(await statusOf(service, "/v1beta/models", { "x-api-key": service.credentials.api_key })).toBe(200);
  });
});

const PATHS: [string, string, number, string, string | null][] = [
  ["GET", "/v1beta/models/nope", 404, "NOT_FOUND", null],
  ["GET", "/v1beta/models/", 404, "NOT_FOUND", null],
  ["GET", "/v1beta/cachedContents", 404, "NOT_FOUND", null],
  ["POST", "/v1beta/files", 405, "INVALID_ARGUMENT", "GET, HEAD"],
  ["GET", "/upload/v1/files", 405, "INVALID_ARGUMENT", "POST"],
  ["GET", "/upload/v1beta/nothing", 404, "NOT_FOUND", null],
  ["GET", "/v1beta/models/a/b", 404, "NOT_FOUND", null],
  ["POST", `/v1beta/models/${MODEL}:countTokens`, 404, "NOT_FOUND", null],
  ["POST", "/v1beta/models/nope:generateContent", 404, "NOT_FOUND", null],
  ["POST", "/v1/models/nope:generateContent", 404, "NOT_FOUND", null],
  ["POST", "/v1beta/models/:generateContent", 400, "INVALID_ARGUMENT", null],
  ["POST", "/v1beta/models/%zz:generateContent", 400, "INVALID_ARGUMENT", null],
  ["POST", "/v1beta/models/a%0Ab:generateContent", 400, "INVALID_ARGUMENT", null],
  ["POST", "/v1beta/models/a/b:generateContent", 400, "INVALID_ARGUMENT", null],
  ["POST", `/v1beta/models/${MODEL}`, 405, "INVALID_ARGUMENT", "GET, HEAD"],
  ["DELETE", "/v1beta/models", 405, "INVALID_ARGUMENT", "GET, HEAD"],
  ["GET", `/v1beta/models/${MODEL}:generateContent`, 405, "INVALID_ARGUMENT", "POST"],
  ["PUT", `/v1/models/${MODEL}:streamGenerateContent?alt=sse`, 405, "INVALID_ARGUMENT", "POST"],
];

describe("an error", () => {
  it("of the native API has code, message, status and details, and a request id", async () => {
    const service = await start();
    const answer = await fetch(`${service.url}/v1beta/models`, { headers: { "x-request-id": "mine" } });
    expect(answer.headers.get("x-request-id")).toBe("mine");
    expect(await answer.json()).toEqual({
      error: {
        code: 401,
        message: expect.stringContaining("API key is required"),
        status: "UNAUTHENTICATED",
        details: [
          {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            reason: "API_KEY_REQUIRED",
            domain: "imgbatch",
          },
        ],
      },
    });
  });

  it("says what is wrong with a path: unknown, malformed, or asked with another method", async () => {
    const service = await start();
    const headers = { "x-api-key": service.credentials.api_key };
    for (const [method, path, status, name, allow] of PATHS) {
      const answer = await fetch(service.url + path, { method, headers });
      const error = await errorOf(answer);
      const facts = [path, answer.status, error.code, error.status, answer.headers.get("allow")];
      expect(facts).toEqual([path, status, status, name, allow]);
    }
  });

  it("on the model list of /v1 is native for the vendor's header, and the other kind for all others", async () => {
    const service = await start();
    for (const path of ["/v1/models", "/v1/models/nope"]) {
      const vendor = await fetch(service.url + path, { headers: { "x-vendorx-api-key": "no" } });
      expect(await errorOf(vendor)).toMatchObject({ code: 401, status: "UNAUTHENTICATED" });
      for (const headers of [{ authorization: "Bearer no" }, { "x-api-key": "no" }]) {
        const answer = await fetch(service.url + path, { headers: headers as HeadersInit });
        expect(await answer.json()).toEqual({
          error: { type: "authentication_error", code: "INVALID_API_KEY", message: expect.any(String) },
        });
      }
    }
    const headers = { authorization: "Bearer no" };
    const verb = await fetch(`${service.url}/v1/models/x:generateContent`, { method: "POST", headers });
    expect(await errorOf(verb)).toMatchObject({ code: 401, status: "UNAUTHENTICATED" });
  });
});

const serve = () => startTestService({ workers: false });

describe("paths below /v1", () => {
  it("are native for the vendor's header, and OpenAI's for every other client", async () => {
    const service = await serve();
    const key = service.credentials.api_key;
    const { name } = await upload(service, "x");
    const native = { "x-vendorx-api-key": key };
    const both = { ...native, authorization: `Bearer ${key}` };
    const other = { authorization: `Bearer ${key}` };
    const get = async (path: string, headers: Record<string, string>) => {
      const answer = await fetch(service.url + path, { headers });
      const body = await answer.json();
      return [answer.status, body.object ?? body.error?.status ?? body.error?.type ?? Object.keys(body)[0]];
    };
    for (const headers of [native, both]) {
      expect(await get("/v1/models", headers)).toEqual([200, "models"]);
      expect(await get(`/v1/models/${MODEL}`, headers)).toEqual([200, "name"]);
      expect(await get("/v1/files", headers)).toEqual([200, "files"]);
      expect(await get(`/v1/${name}`, headers)).toEqual([200, "name"]);
      expect(await get("/v1/files/none", headers)).toEqual([404, "NOT_FOUND"]);
      expect(await get("/v1/nothing", headers)).toEqual([404, "NOT_FOUND"]);
    }
    expect(await get("/v1/models", other)).toEqual([200, "list"]);
    expect(await get(`/v1/models/${MODEL}`, other)).toEqual([200, "model"]);
    expect(await get("/v1/files", other)).toEqual([200, "list"]);
    expect(await get(`/v1/${name}`, other)).toEqual([200, "file"]);
    expect(await get("/v1/nothing", other)).toEqual([404, "not_found_error"]);
    expect(await get("/v1/images/batches", both)).toEqual([200, "list"]);
    expect(await get("/v1/images/batches", native)).toEqual([401, "authentication_error"]);
  });

  it("take no key from the query; those below /v1beta and /upload/v1beta do", async () => {
    const service = await serve();
    const query = `?key=${service.credentials.api_key}`;
    const { name } = await upload(service, "x");
    const status = async (path: string, init: RequestInit = {}) =>
      (await fetch(service.url + path + query, init)).status;
    const post = { method: "POST", headers: { "x-goog-upload-command": "start" } };
    expect(await status("/v1beta/files")).toBe(200);
    expect(await status(`/v1beta/${name}:download`)).toBe(200);
    expect(await status("/upload/v1beta/files", post)).toBe(200);
    expect(await status("/upload/v1/files", post)).toBe(401);
    expect(await status(`/download/v1beta/${name}:download`)).toBe(401);
    expect(await status(`/v1/models/${MODEL}:generateContent`, { method: "POST" })).toBe(401);
    expect(await status("/v1/models")).toBe(401);
  });

  it("lead to one set of operations: methods, errors and metrics are the same", async () => {
    const service = await serve();
    expect((await startUpload(service, { prefix: "/v1" })).status).toBe(200);
    const headers = { "x-vendorx-api-key": service.credentials.api_key };
    const put = await fetch(`${service.url}/v1/files`, { method: "PUT", headers });
    expect([put.status, put.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
    const nothing = await fetch(`${service.url}/upload/v1/files`, { method: "POST" });
    expect([nothing.status, (await nothing.json()).error.status]).toEqual([401, "UNAUTHENTICATED"]);
    const metrics = await (await fetch(`${service.url}/metrics`)).text();
    expect(metrics).toContain('{method="POST",route="/upload/v1beta/files",status="200"} 1');
    expect(metrics).toContain('{method="PUT",route="/v1beta/files",status="405"} 1');
  });

  it.each([
    ["/v1/models", true, "/v1beta/models"],
    ["/v1/models?x=1", false, "/v1/models?x=1"],
    ["/v1/models/a:generateContent?alt=sse", false, "/v1beta/models/a:generateContent?alt=sse"],
    ["/v1/models/a?x=:b", false, "/v1/models/a?x=:b"],
    ["/v1/images/batches", true, "/v1/images/batches"],
    ["/upload/v1/files", false, "/upload/v1beta/files"],
    ["/download/v1/files/a:download", false, "/download/v1beta/files/a:download"],
    ["/v1beta/files", true, "/v1beta/files"],
  ])("%s, with the vendor's header: %s, is read as %s", (url, hasVendorKey, read) => {
    const request = { url, method: "POST", get: () => (hasVendorKey ? "key" : undefined) };
    readTarget({ keyHeaders: ["x-key"] })(request as unknown as Request, {} as Response, () => {});
    expect(request.url).toBe(read);
  });
});
