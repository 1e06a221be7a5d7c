import type { Request, Response } from "express";
import { describe, expect, it } from "vitest";
import { readTarget } from "../../../src/server/http/host.ts";
import { MODEL, startTestService } from "../../support/service.ts";
import { start, upload } from "../../support/uploads.ts";

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
    expect((await start(service, { prefix: "/v1" })).status).toBe(200);
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
    ["/images/generations", false, "/v1/images/generations"],
  ])("%s, with the vendor's header: %s, is read as %s", (url, hasVendorKey, read) => {
    const request = { url, method: "POST", get: () => (hasVendorKey ? "key" : undefined) };
    readTarget({ keyHeaders: ["x-key"] })(request as unknown as Request, {} as Response, () => {});
    expect(request.url).toBe(read);
  });
});
