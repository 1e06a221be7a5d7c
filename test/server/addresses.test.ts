import { expect, it } from "vitest";
import { content } from "../support/realtime.ts";
import { MODEL, startTestService } from "../support/service.ts";

const KEY = (key: string) => ({ authorization: `Bearer ${key}`, "content-type": "application/json" });

it("understands addresses that clients build from base URLs that are nearly right", async () => {
  const { url, credentials } = await startTestService({ workers: false });
  const headers = KEY(credentials.api_key);
  for (const path of ["//v1//models", "/v1beta/openai/models", "/v1alpha/models", "/v1beta//models"]) {
    const answer = await fetch(url + path, { headers });
    expect([path, answer.status]).toEqual([path, 200]);
    await answer.arrayBuffer();
  }
  const body = JSON.stringify({ model: "models/gpt-image-1", prompt: "a kite" });
  const made = await fetch(`${url}/v1beta/openai/images/generations`, { method: "POST", headers, body });
  expect(made.status).toBe(200);
  await made.arrayBuffer();
});

it("takes the base URL of either API with and without its version", async () => {
  const { url, credentials } = await startTestService();
  const bearer = KEY(credentials.api_key);
  const vendors = { "x-vendorx-api-key": credentials.api_key, "content-type": "application/json" };
  const post = (headers: object, path: string, body: object) => ({ path, headers, body });
  const image = { prompt: "a kite" };
  const response = { model: "gpt-5", input: "a kite", tools: [{ type: "image_generation" }] };
  const get = (headers: object, path: string) => ({ path, headers, body: null });
  const asked = [
    post(bearer, "/images/generations", image),
    post(bearer, "/v1/v1/images/generations", image),
    post(bearer, "/responses", response),
    get(bearer, "/files"),
    get(bearer, "/batches?limit=1"),
    get(bearer, "/models"),
    get(bearer, "/v1/v1/models"),
    post(vendors, `/v1beta/v1beta/models/${MODEL}:generateContent`, content("a kite")),
    post(vendors, `/v1/v1beta/models/${MODEL}:generateContent`, content("a kite")),
    post(vendors, `/models/${MODEL}:generateContent`, content("a kite")),
    get(vendors, "/v1beta/v1beta/files"),
    post(vendors, "/v1beta/v1beta/interactions", { model: MODEL, input: "a kite" }),
    post(vendors, "/interactions", { model: MODEL, input: "a kite" }),
  ];
  for (const { path, headers, body } of asked) {
    const sent = body === null ? {} : { method: "POST", body: JSON.stringify(body) };
    const answer = await fetch(url + path, { headers: headers as Record<string, string>, ...sent });
    expect([path, answer.status, answer.status === 200 ? "" : await answer.text()]).toEqual([path, 200, ""]);
  }
  const start = { ...vendors, "x-goog-upload-command": "start", "x-goog-upload-protocol": "resumable" };
  const upload = await fetch(`${url}/v1beta/upload/v1beta/files`, {
    method: "POST",
    headers: start,
    body: "{}",
  });
  expect([upload.status, upload.headers.get("x-goog-upload-status")]).toEqual([200, "active"]);
});

it("names the right base URL where another one cannot be meant, in the shape of the API", async () => {
  const { url, credentials } = await startTestService({ workers: false });
  const headers = KEY(credentials.api_key);
  for (const path of ["/api/v1/images/generations", "/openai/v1/images/edits", "/v1/images/generations/"]) {
    const answer = await fetch(url + path, { method: "POST", headers, body: "{}" });
    expect([path, answer.status]).toEqual([path, 404]);
    const { error } = (await answer.json()) as { error: object };
    expect(error).toMatchObject({ param: null, message: expect.stringContaining(`${url}/v1`) });
  }
});

it("lets pages of the named origins call the image APIs from a browser, no others, and never the console", async () => {
  const page = "https://shop.example";
  const config = { server: { corsOrigins: [page] } };
  const { url, credentials } = await startTestService({ workers: false, config });
  const ask = async (path: string, origin: string, more: RequestInit = {}) => {
    const headers = { ...KEY(credentials.api_key), origin, ...more.headers };
    const answer = await fetch(url + path, { ...more, headers });
    await answer.arrayBuffer();
    const { headers: told, status } = answer;
    return [status, told.get("access-control-allow-origin"), told.get("access-control-allow-headers")];
  };
  for (const path of ["/v1/models", "/v1beta/models", "/v1/images/batches/models"]) {
    expect([path, ...(await ask(path, page))]).toEqual([path, 200, page, null]);
    expect([path, ...(await ask(path, "https://other.example"))]).toEqual([path, 200, null, null]);
  }
  // A page reads errors, too.
  expect(await ask("/v1/images/generations", page, { method: "POST", body: "{}" })).toEqual([
    400,
    page,
    null,
  ]);
  const wanted = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "x-goog-api-key",
  };
  const preflight = { method: "OPTIONS", headers: wanted };
  const path = "/v1beta/models/m:generateContent";
  expect(await ask(path, page, preflight)).toEqual([204, page, "x-goog-api-key"]);
  expect((await ask(path, "https://other.example", preflight)).slice(1)).toEqual([null, null]);
  for (const path of ["/", "/v1/account", "/v1/ledger"])
    for (const more of [{}, preflight]) expect((await ask(path, page, more)).slice(1)).toEqual([null, null]);
  const closed = await startTestService({ workers: false });
  const answer = await fetch(`${closed.url}/v1/models`, { headers: { origin: page } });
  expect(answer.headers.get("access-control-allow-origin")).toBeNull();
  await answer.arrayBuffer();
});
