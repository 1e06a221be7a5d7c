import { createServer, type RequestListener } from "node:http";
import { gzipSync } from "node:zlib";
import { expect, it, onTestFinished } from "vitest";
import { createBatch, getBatch, listItems, withCounts } from "../../src/client/batches.ts";
import { getContent } from "../../src/client/download.ts";
import { listModels } from "../../src/client/models.ts";
import { createServiceHttp } from "../../src/client/service-http.ts";
import { errorEntry } from "../../src/contract/errors.ts";
import type { Attempt, Http } from "../../src/http/http.ts";
import { retryAfterMs } from "../../src/http/retries.ts";
import { FAKE_KEY, type FakeOptions, type FakeService, startFakeService } from "../support/fake-service.ts";
import { gate } from "../support/gate.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { listening } from "../support/listening.ts";

interface Wire {
  fake: FakeService;
  http: Http;
  clock: InstantClock;
}

async function wire(options: FakeOptions = {}, apiKey = FAKE_KEY, timeoutMs = 60_000): Promise<Wire> {
  const fake = await startFakeService(options);
  onTestFinished(() => fake.close());
  const clock = new InstantClock();
  const http = createServiceHttp({ baseUrl: fake.url, apiKey, clock, random: () => 0.5, timeoutMs });
  return { fake, http, clock };
}

const BODY = JSON.stringify({ model: "m", items: [{ custom_id: "a", prompt: "a" }] });
const create = (http: Http) => createBatch(http, BODY, "key-1");
const look = (http: Http) => getBatch(http, "imgbatch_none");
const error = (status: number, headers: Record<string, string> = {}) => ({
  status,
  headers,
  body: { error: { type: "api_error", code: "SOMETHING", message: "Busy." } },
});

it.each([429, 502, 503, 504])(
  "[HTTP-1] %i is tried again at most three times, with exponential backoff and full jitter",
  async (status) => {
    const { fake, http, clock } = await wire();
    fake.fault(/^GET/, ...Array(5).fill(error(status)));
    await expect(listModels(http)).rejects.toMatchObject({
      httpStatus: status,
      message: "Busy. (SOMETHING)",
    });
    expect(fake.requests).toHaveLength(4);
    expect(clock.sleepsMs).toEqual([250, 500, 1000]);
  },
);

it.each([400, 401, 402, 403, 404, 409, 410, 413, 500])("[HTTP-1] %i is not tried again", async (status) => {
  const { fake, http, clock } = await wire();
  fake.fault(/^GET/, error(status));
  await expect(listModels(http)).rejects.toMatchObject({ httpStatus: status });
  expect(fake.requests).toHaveLength(1);
  expect(clock.sleepsMs).toEqual([]);
});

it("a Retry-After is followed exactly, as seconds and as a date", async () => {
  const { fake, http, clock } = await wire();
  // The clock of the service is an hour ahead of ours.
  const theirTime = (ms: number) => new Date(clock.nowMs() + 3_600_000 + ms).toUTCString();
  const [date, later] = [theirTime(0), theirTime(90_000)];
  fake.fault(/^GET/, error(429, { "retry-after": "7" }), error(503, { date, "retry-after": later }));
  await listModels(http);
  expect(clock.sleepsMs).toEqual([7_000, 90_000]);
});

it("a Retry-After of many minutes is reported instead of waited for", async () => {
  const { fake, http, clock } = await wire();
  fake.fault(/^GET/, error(429, { "retry-after": "3600" }));
  await expect(listModels(http)).rejects.toMatchObject({ code: "RATE_LIMITED", retryAfterMs: 3_600_000 });
  expect(clock.sleepsMs).toEqual([]);
});

it("a message that all tokens are out of use stops the retries", async () => {
  const { fake, http } = await wire();
  const message = "All available tokens are currently cooling down";
  fake.fault(/^GET/, { status: 503, body: { error: { code: "X", message } } });
  await expect(listModels(http)).rejects.toThrow("cooling down");
  expect(fake.requests).toHaveLength(1);
});

it("a broken connection and silence are tried again", async () => {
  const { fake, http } = await wire({}, FAKE_KEY, 2000);
  fake.fault(/^GET/, { reset: "before" }, { silent: true }, { cutAt: 5 });
  expect(await listModels(http)).toHaveLength(2);
  expect(fake.requests).toHaveLength(4);
});

it("an error of the service keeps its code, its status, its request id and its parameter", async () => {
  const { fake, http } = await wire();
  const body = { error: { code: "BATCH_IMAGE_INVALID_ITEMS", message: "items[0]: no", param: "items[0]" } };
  fake.fault(/^GET/, { status: 400, body });
  await expect(look(http)).rejects.toMatchObject({
    code: "BATCH_IMAGE_INVALID_ITEMS",
    httpStatus: 400,
    requestId: "req_fake",
    param: "items[0]",
    message: "items[0]: no",
  });
});

it("a foreign code is understood by its status and kept in the message", async () => {
  const { fake, http } = await wire();
  fake.fault(
    /^GET/,
    { status: 402, body: { error: { code: "BROKE", message: "Pay first" } } },
    { status: 401, body: "<html>" },
  );
  await expect(look(http)).rejects.toMatchObject({
    code: "BATCH_IMAGE_INSUFFICIENT_BALANCE",
    message: "Pay first (BROKE)",
  });
  await expect(look(http)).rejects.toMatchObject({ code: "INVALID_API_KEY", httpStatus: 401 });
});

it("an answer that is no JSON, or not what was asked for, is BAD_RESPONSE", async () => {
  const { fake, http } = await wire();
  fake.fault(
    /^GET/,
    { status: 200, body: "<html>" },
    { status: 200, body: { hello: 1 } },
    { status: 200, body: [] },
    { status: 200, body: { data: [null, 1, { id: null }] } },
  );
  await expect(look(http)).rejects.toMatchObject({ code: "BAD_RESPONSE" });
  await expect(look(http)).rejects.toMatchObject({ code: "BAD_RESPONSE" });
  await expect(listModels(http)).rejects.toMatchObject({ code: "BAD_RESPONSE" });
  await expect(listModels(http)).rejects.toMatchObject({ code: "BAD_RESPONSE" });
});

it.each(["/v1", "/v1beta", "/openai/v1", "/v1/images/batches", "/console"])(
  "a base URL that ends with a path of the service is told to leave it out: %s",
  async (path) => {
    const { fake } = await wire();
    fake.fault(/./, { status: 404, body: "" });
    const baseUrl = `${fake.url}${path}`;
    const http = createServiceHttp({ baseUrl, apiKey: FAKE_KEY, clock: new InstantClock(), random: () => 0 });
    const message = `No imgbatch API at ${baseUrl}; try ${fake.url}`;
    await expect(listModels(http)).rejects.toMatchObject({
      code: "NOT_FOUND",
      message,
      advice: `run the same command with --base-url ${fake.url}`,
    });
  },
);

it("[HTTP-7] a refused connection on create says that nothing was sent", async () => {
  const { fake, http } = await wire();
  await fake.close();
  await expect(create(http)).rejects.toMatchObject({
    code: "NETWORK",
    message: expect.stringContaining("No answer from"),
  });
});

it("[HTTP-7] a create that may have arrived without an answer is SUBMISSION_UNKNOWN", async () => {
  const doubtful = [
    { reset: "after" },
    { silent: true },
    { status: 504, body: "gateway" },
    { status: 500, body: "" },
    { status: 200, body: "?" },
  ] as const;
  for (const fault of doubtful) {
    const { fake, clock } = await wire();
    const http = createServiceHttp({ baseUrl: fake.url, apiKey: FAKE_KEY, clock, random: () => 0 });
    fake.fault(/^POST/, fault, fault, fault, fault);
    const attempt = http.json({
      method: "POST",
      path: "/v1/images/batches",
      body: BODY,
      submits: true,
      timeoutMs: 50,
    });
    await expect(attempt).rejects.toMatchObject({ code: "SUBMISSION_UNKNOWN" });
  }
});

it("[HTTP-7] the error of an unknown outcome has the code and request id of the service", async () => {
  const { fake, http } = await wire();
  const body = { error: { code: "INTERNAL_ERROR", message: "Broken." } };
  fake.fault(/^POST/, { status: 500, body });
  await expect(create(http)).rejects.toMatchObject({
    code: "SUBMISSION_UNKNOWN",
    message: expect.stringContaining("Broken. (INTERNAL_ERROR)"),
    requestId: "req_fake",
  });
});

it("[HTTP-7] a refusal in the service's own words is no unknown outcome, whatever went before", async () => {
  const { fake, http } = await wire();
  const busy = { error: { code: "BATCH_IMAGE_QUEUE_FAILED", message: "No workers." } };
  fake.fault(/^POST/, ...Array.from({ length: 4 }, () => ({ status: 502, body: busy })));
  await expect(create(http)).rejects.toMatchObject({ code: "BATCH_IMAGE_QUEUE_FAILED" });
  const broke = { error: { code: "BATCH_IMAGE_INSUFFICIENT_BALANCE", message: "Too low." } };
  fake.fault(/^POST/, { reset: "before" }, { status: 402, body: broke });
  await expect(create(http)).rejects.toMatchObject({ code: "BATCH_IMAGE_INSUFFICIENT_BALANCE" });
});

it("an aborted request ends with the reason of the signal, also in a pause and in the middle of a body", async () => {
  const { fake, http } = await wire();
  const reason = new Error("stop");
  fake.fault(/^GET/, { silent: true });
  const stop = new AbortController();
  const asked = listModels(http, stop.signal);
  const rejected = expect(asked).rejects.toBe(reason);
  await expect.poll(() => fake.requests).toHaveLength(1);
  stop.abort(reason);
  await rejected;
  await expect(listModels(http, AbortSignal.abort(reason))).rejects.toBe(reason);
});

it("a create under way may have longer for its answer, but no other attempt leaves", async () => {
  const { fake, http } = await wire();
  const reason = new Error("stop");
  const { promise: held, open } = gate();
  const stop = new AbortController();
  const later = new AbortController();
  const signals = { signal: stop.signal, answerSignal: later.signal };
  const sent = () => expect.poll(() => fake.requests.length).toBe(1);
  fake.fault(/^POST/, { held });
  const made = createBatch(http, BODY, "key-1", signals);
  await sent();
  stop.abort(reason);
  open();
  expect((await made).batch.id).toBe(fake.batches[0]?.id);
  fake.requests.splice(0);
  fake.fault(/^POST/, { silent: true });
  const first = new AbortController();
  const silent = createBatch(http, BODY, "key-2", { signal: first.signal, answerSignal: later.signal });
  await sent();
  first.abort(new Error("wait"));
  later.abort(reason);
  await expect(silent).rejects.toBe(reason);
  await expect(createBatch(http, BODY, "key-3", { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  expect(fake.requests).toHaveLength(1);
});

it("a redirect of a POST is reported and not followed", async () => {
  const { fake, http } = await wire();
  fake.fault(/^POST/, { status: 307, headers: { location: "https://new.example/" } });
  await expect(create(http)).rejects.toMatchObject({
    code: "BAD_RESPONSE",
    message: expect.stringContaining("https://new.example/"),
  });
});

it("items are read over all pages, by cursor and by offset", async () => {
  for (const foreign of [false, true]) {
    const { http } = await wire({ itemPage: 2, foreign });
    const items = Array.from({ length: 5 }, (_, i) => ({ custom_id: `i${i}`, prompt: "p" }));
    const { batch } = await createBatch(http, JSON.stringify({ model: "m", items }), "k");
    const found = await listItems(http, batch.id);
    expect(found.map((item) => item.customId)).toEqual(["i0", "i1", "i2", "i3", "i4"]);
    expect(found.every((item) => item.status === "success")).toBe(true);
  }
});

it("a batch that says little is read: absent fields are null, unknown ones are kept, other names are known", async () => {
  const { fake, http } = await wire();
  fake.fault(/^GET/, {
    status: 200,
    body: { id: "imgbatch_none", status: "submitting", extra: { x: 1 }, item_count: "many" },
  });
  const { batch } = await look(http);
  expect(batch).toMatchObject({
    id: "imgbatch_none",
    status: "queued",
    isDone: false,
    itemCount: null,
    name: null,
    successCount: 0,
  });
  expect(batch.raw.extra).toEqual({ x: 1 });
});

it("a batch that is older than its request was there before, also when the service does not say so", async () => {
  const { fake, http } = await wire();
  const batch = (ageS: number) => ({
    id: "b",
    status: "queued",
    created_at: Math.floor(Date.now() / 1000) - ageS,
  });
  fake.fault(/^POST/, { status: 200, body: batch(7200) }, { status: 200, body: batch(1) });
  expect((await create(http)).replayed).toBe(true);
  expect((await create(http)).replayed).toBe(false);
});

it("a batch that is under way already was there before, also when the service does not say so", async () => {
  const { fake, http } = await wire();
  const answers = ["running", "completed", "dreaming", "queued", "submitting"];
  fake.fault(/^POST/, ...answers.map((status) => ({ status: 200, body: { id: "b", status } })));
  const found = [];
  for (const _ of answers) found.push((await create(http)).replayed);
  expect(found).toEqual([true, true, true, false, false]);
});

it("a service that does not say whether there is more is asked until it has nothing new", async () => {
  const all = Array.from({ length: 1200 }, (_, i) => ({ custom_id: `i${i}`, status: "success" }));
  const { http } = await serve((request, response) => {
    const at = Number(new URL(request.url ?? "", "http://x").searchParams.get("cursor") ?? 0);
    response.end(JSON.stringify({ data: all.slice(at, at + 500) }));
  });
  expect(await listItems(http, "b")).toHaveLength(1200);
});

it("errors of other shapes keep their own message", async () => {
  const shapes = [
    { error: "It broke." },
    { message: "It broke." },
    { detail: "It broke." },
    { error: { code: 404, message: "It broke.", status: "NOT_FOUND" } },
  ];
  for (const body of shapes) {
    const { fake, http } = await wire();
    fake.fault(/^GET/, { status: 404, body });
    await expect(look(http)).rejects.toThrow(/^It broke\./);
    // Also of the kind of the other API: a batch is no model.
    fake.fault(/^GET/, { status: 404, body });
    await expect(look(http)).rejects.toMatchObject({ code: "NOT_FOUND" });
  }
});

it("redirects within the service are followed a few times, and a circle ends after as many", async () => {
  const seen: string[] = [];
  const { http } = await serve((request, response) => {
    const path = request.url ?? "";
    seen.push(`${path.replace(/^.*\//, "")} ${request.headers.authorization}`);
    if (path.endsWith("/moved")) response.end(JSON.stringify({ id: "short", status: "running" }));
    else response.writeHead(307, { location: path.includes("short") ? `${path}/moved` : path }).end();
  });
  expect((await getBatch(http, "short")).batch.status).toBe("running");
  expect(seen).toEqual([`short Bearer ${FAKE_KEY}`, `moved Bearer ${FAKE_KEY}`]);
  seen.length = 0;
  await expect(getBatch(http, "circle")).rejects.toMatchObject({
    code: "BAD_RESPONSE",
    message: expect.stringMatching(/redirects again and again.*\/circle\./),
  });
  expect(seen).toHaveLength(4);
});

it("the key does not come back from another host with a redirect", async () => {
  const seen: (string | undefined)[] = [];
  let own = "";
  const other = await serve((_, response) => {
    response.writeHead(302, { location: `${own}/v1/back` }).end();
  });
  const { http, baseUrl } = await serve((request, response) => {
    seen.push(request.headers.authorization);
    if (request.url === "/v1/back") response.end("image");
    else response.writeHead(302, { location: `${other.baseUrl}/away` }).end();
  });
  own = baseUrl;
  expect((await getContent(http, "b", "cat", 0)).data.toString()).toBe("image");
  expect(seen).toEqual([`Bearer ${FAKE_KEY}`, undefined]);
});

it("a status outside the catalogue is reported as it is, and judged by its hundreds", async () => {
  const classes: [number, string][] = [
    [400, "usage"],
    [418, "usage"],
    [408, "temporary"],
    [451, "usage"],
    [501, "temporary"],
    [599, "temporary"],
  ];
  for (const [status, exit] of classes) {
    const { fake, http } = await wire();
    fake.fault(/^GET/, { status, body: "<html>" });
    const thrown = await look(http).catch((caught) => caught);
    expect(thrown).toMatchObject({ code: `HTTP_${status}`, httpStatus: status, requestId: "req_fake" });
    expect(errorEntry(thrown.code).exit).toBe(exit);
  }
});

it("each attempt is reported with its response, and without the key", async () => {
  const attempts: Attempt[] = [];
  const { fake, clock } = await wire();
  const onAttempt = (attempt: Attempt) => attempts.push(attempt);
  const http = createServiceHttp({ baseUrl: fake.url, apiKey: FAKE_KEY, clock, random: () => 0, onAttempt });
  fake.fault(/^GET/, { reset: "before" }, { status: 503, headers: { "x-request-id": FAKE_KEY }, body: "" });
  await listModels(http);
  expect(attempts).toMatchObject([
    { method: "GET", path: "/v1/images/batches/models", status: null, requestId: undefined },
    { status: 503, requestId: "[API key]" },
    { status: 200, requestId: "req_fake" },
  ]);
});

it("counts that a service does not say are counted from the items, and numbers may be text", async () => {
  const { fake, http } = await wire();
  const { batch } = await create(http);
  const answers: [object, object][] = [
    [{}, { hasCounts: false }],
    [{ item_count: 1 }, { hasCounts: false }],
    [
      { item_count: "1", success_count: "1" },
      { hasCounts: true, itemCount: 1, successCount: 1 },
    ],
    [
      { success_count: 0, fail_count: 0 },
      { hasCounts: true, itemCount: null },
    ],
    [{ success_count: "all", fail_count: -1 }, { hasCounts: false }],
  ];
  for (const [fields, read] of answers) {
    fake.fault(/^GET/, { status: 200, body: { id: batch.id, status: "completed", ...fields } });
    expect((await getBatch(http, batch.id)).batch).toMatchObject(read);
  }
  fake.fault(/^GET/, { status: 200, body: { id: batch.id, status: "completed" } });
  const ended = (await getBatch(http, batch.id)).batch;
  const [counted] = await withCounts(http, [ended]);
  expect(counted).toMatchObject({ hasCounts: true, itemCount: 1, successCount: 1, failCount: 0 });
});

it("an answer without an end is given up, as JSON, as an error, and when it unpacks to far more than it was", async () => {
  const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024, 32));
  const endless =
    (status: number): RequestListener =>
    (_, response) => {
      response.writeHead(status, { "content-type": "application/json" });
      const more = () => {
        while (response.write(Buffer.alloc(1024 * 1024, 32)));
      };
      response.on("drain", more);
      more();
    };
  const packed: RequestListener = (_, response) => {
    response.writeHead(200, { "content-encoding": "gzip" }).end(bomb);
  };
  for (const listener of [endless(200), packed]) {
    const { http } = await serve(listener);
    await expect(getBatch(http, "b")).rejects.toThrow("has no end");
  }
  const { http } = await serve(endless(404));
  await expect(getBatch(http, "b")).rejects.toMatchObject({ code: "NOT_FOUND" });
});

it("a Retry-After that is out of all reason is a day", async () => {
  for (const value of ["99999999999999999999", "9".repeat(400), "Fri, 31 Dec 9999 23:59:59 GMT"]) {
    expect(retryAfterMs(new Headers({ "retry-after": value }), Date.now())).toBe(86_400_000);
  }
  expect(retryAfterMs(new Headers({ "retry-after": "soon" }), 0)).toBeNull();
});

async function serve(listener: RequestListener): Promise<{ baseUrl: string; http: Http }> {
  const server = createServer(listener);
  const baseUrl = await listening(server);
  const clock = new InstantClock();
  return { baseUrl, http: createServiceHttp({ baseUrl, apiKey: FAKE_KEY, clock, random: () => 0 }) };
}
