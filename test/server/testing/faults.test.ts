import { describe, expect, it } from "vitest";
import { PATHS } from "../../../src/contract/routes.ts";
import type { TestRequest } from "../../../src/contract/test-api.ts";
import { TestBench } from "../../../src/server/testing/test-bench.ts";
import { FakeProvider, tinyPng } from "../../support/fake-provider.ts";
import { ask, edit, form, generate as images } from "../../support/openai-images.ts";
import { content, generate as generateContent, imagePart } from "../../support/realtime.ts";
import { MODEL, startTestService, type TestService } from "../../support/service.ts";

/** A service for tests, and what counts the pictures that it makes. */
async function bench() {
  const provider = new FakeProvider();
  const service = await startTestService({ providers: [provider], isForTests: true });
  return { service, provider };
}

function order(service: TestService, fault: unknown, test?: string): Promise<Response> {
  return call(service, "POST", PATHS.testFaults, test, fault);
}

function call(service: TestService, method: string, path: string, test?: string, body?: unknown) {
  const headers = {
    authorization: `Bearer ${service.credentials.api_key}`,
    ...(test === undefined ? {} : { "x-imgbatch-test": test }),
  };
  const sent = body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) };
  return fetch(service.url + path, { method, headers, ...sent });
}

async function faulty(service: TestService, fault: object): Promise<void> {
  const answer = await order(service, fault);
  expect([answer.status, await answer.json()]).toEqual([200, fault]);
}

const journal = async (service: TestService, test?: string) =>
  (await call(service, "GET", PATHS.testRequests, test)).json();

const fox = { model: MODEL, prompt: "a red fox" };

describe("a fault that a test orders", () => {
  it("[FAULT-1] is OpenAI's own error for as many requests as it says, and nothing is made or charged", async () => {
    const { service, provider } = await bench();
    await faulty(service, { times: 2, surface: "openai", status: 429, retry_after: 7 });
    const native = await generateContent(service, content("a red fox"));
    expect(native.status).toBe(200);
    for (let i = 0; i < 2; i++) {
      const answer = await images(service, fox);
      expect([answer.status, answer.headers.get("retry-after")]).toEqual([429, "7"]);
      expect((await answer.json()).error).toEqual({
        message: expect.stringMatching(/^Rate limit reached for .* Please try again in 7s\.$/),
        type: "requests",
        param: null,
        code: "rate_limit_exceeded",
      });
    }
    expect(provider.requests).toHaveLength(1);
    expect((await images(service, fox)).status).toBe(200);
    expect(provider.requests).toHaveLength(2);
    await service.expectBooks();
  });

  it("[FAULT-1] is Google's own error, in the form of the answer", async () => {
    const { service, provider } = await bench();
    await faulty(service, { status: 429, retry_after: 3 });
    const limited = await generateContent(service, content("a red fox"));
    expect([limited.status, limited.headers.get("retry-after")]).toEqual([429, "3"]);
    expect((await limited.json()).error).toEqual({
      code: 429,
      message: "Resource has been exhausted (e.g. check quota). Please retry in 3s.",
      status: "RESOURCE_EXHAUSTED",
      details: [{ "@type": "type.googleapis.com/google.rpc.RetryInfo", retryDelay: "3s" }],
    });
    await faulty(service, { status: 503 });
    const stream = await generateContent(service, content("a red fox"), { verb: "streamGenerateContent" });
    const error = { code: 503, message: expect.stringContaining("overloaded"), status: "UNAVAILABLE" };
    expect([stream.status, await stream.json()]).toEqual([503, [{ error }]]);
    expect(provider.requests).toEqual([]);
  });

  it("[FAULT-1] meets only requests with its vendor, model and text", async () => {
    const { service } = await bench();
    await faulty(service, { times: 9, surface: "google", status: 500 });
    await faulty(service, { times: 9, model: "other", status: 501 });
    await faulty(service, { times: 9, text: "red fox", status: 502 });
    const statuses = [
      images(service, { ...fox, prompt: "a blue owl" }),
      images(service, fox),
      images(service, { ...fox, model: "other" }),
      edit(service, form(["prompt", "not a red fox"], ["image", await tinyPng()])),
      generateContent(service, content("a blue owl")),
    ].map(async (answer) => (await answer).status);
    expect(await Promise.all(statuses)).toEqual([200, 502, 501, 502, 500]);
  });

  it("[FAULT-1] meets an even share of the requests, until it is ended", async () => {
    const { service } = await bench();
    await faulty(service, { share: 0.25, status: 503 });
    const statuses: number[] = [];
    for (let i = 0; i < 8; i++) statuses.push((await images(service, fox)).status);
    expect(statuses).toEqual([200, 200, 200, 503, 200, 200, 200, 503]);
    const listed = await (await call(service, "GET", PATHS.testFaults)).json();
    expect(listed).toEqual({ faults: [{ share: 0.25, status: 503, met: 2 }] });
    expect((await call(service, "DELETE", PATHS.testFaults)).status).toBe(204);
    for (let i = 0; i < 4; i++) expect((await images(service, fox)).status).toBe(200);
  });

  it("[FAULT-1] answers without images, or refuses for its reason, as each vendor does", async () => {
    const { service, provider } = await bench();
    await faulty(service, { times: 3, empty: true });
    expect(await (await images(service, fox)).json()).toEqual({ created: expect.any(Number), data: [] });
    expect(await (await generateContent(service, content("x"))).json()).toMatchObject({ candidates: [] });
    const events = await generateContent(service, content("x"), { verb: "streamGenerateContent?alt=sse" });
    expect(await events.text()).toMatch(/^data: \{"candidates":\[\],.*\}\n\n$/);

    await faulty(service, { times: 2, refuse: "SAFETY" });
    const refused = await images(service, fox);
    expect([refused.status, (await refused.json()).error]).toEqual([
      400,
      {
        message: expect.stringContaining("safety_violations=[SAFETY]"),
        type: "image_generation_user_error",
        param: null,
        code: "moderation_blocked",
      },
    ]);
    expect((await (await generateContent(service, content("x"))).json()).promptFeedback).toEqual({
      blockReason: "SAFETY",
    });
    await faulty(service, { refuse: "IMAGE_SAFETY" });
    expect((await (await generateContent(service, content("x"))).json()).candidates).toEqual([
      { finishReason: "IMAGE_SAFETY", index: 0 },
    ]);
    await faulty(service, { refuse: "no cats" });
    expect((await (await generateContent(service, content("x"))).json()).promptFeedback).toEqual({
      blockReason: "PROHIBITED_CONTENT",
      blockReasonMessage: "no cats",
    });
    expect(provider.requests).toEqual([]);
  });

  it("[FAULT-1] is that of Responses and of Interactions, too", async () => {
    const { service, provider } = await bench();
    const response = { model: "gpt-5", input: "a red fox", tools: [{ type: "image_generation" }] };
    const respond = (more: object = {}) => ask(service, PATHS.responses, { ...response, ...more });
    const interact = (more: object = {}) => {
      const headers = { "x-vendorx-api-key": service.credentials.api_key };
      return ask(service, PATHS.interactions, { model: MODEL, input: "a red fox", ...more }, { headers });
    };
    await faulty(service, { times: 4, empty: true });
    expect(await (await respond()).json()).toMatchObject({
      object: "response",
      status: "completed",
      output: [],
    });
    expect(await (await respond({ stream: true })).text()).toMatch(
      /^event: response\.created\n.*event: response\.completed\n/s,
    );
    expect(await (await interact()).json()).toMatchObject({ status: "completed", steps: [] });
    expect(await (await interact({ stream: true })).text()).toMatch(
      /^event: interaction\.created\n.*event: interaction\.completed\n/s,
    );
    await faulty(service, { times: 2, refuse: "no cats" });
    expect((await (await respond()).json()).error.code).toBe("moderation_blocked");
    const error = { code: "invalid_request", message: "no cats" };
    expect(await (await interact()).json()).toEqual({ error });
    await faulty(service, { status: 429 });
    expect((await (await interact()).json()).error.code).toBe("too_many_requests");
    expect(provider.requests).toEqual([]);
  });

  it("[FAULT-1] of images waits for a request for images: a list of models is none", async () => {
    const { service } = await bench();
    await faulty(service, { empty: true });
    expect((await call(service, "GET", PATHS.sharedModels)).status).toBe(200);
    expect((await (await images(service, fox)).json()).data).toEqual([]);
    await faulty(service, { status: 500 });
    expect((await call(service, "GET", PATHS.sharedModels)).status).toBe(500);
  });

  it("[FAULT-1] loses the answer of a picture that is made and charged, once for an idempotency key", async () => {
    const { service, provider } = await bench();
    await faulty(service, { lost: true });
    const init = { headers: { "idempotency-key": "one" } };
    await expect(images(service, fox, init)).rejects.toThrow();
    expect(provider.requests).toHaveLength(1);
    const again = await images(service, fox, init);
    expect([again.status, again.headers.get("idempotency-replayed")]).toEqual([200, "true"]);
    expect(provider.requests).toHaveLength(1);
    const usage = await (await call(service, "GET", PATHS.usage)).json();
    expect(JSON.stringify(usage)).toContain('"image_count":1');
    const statuses = (await journal(service)).requests.map(({ path, answer }: TestRequest) => [path, answer]);
    expect(statuses).toEqual([
      ["/v1/images/generations", { status: null }],
      ["/v1/images/generations", { status: 200 }],
      ["/v1/usage", { status: 200 }],
    ]);
  });

  it("[FAULT-1] cuts the answer behind as many bytes as it says, also that of another fault", async () => {
    const { service } = await bench();
    const readAll = async (answer: Response) => {
      let text = "";
      const decoder = new TextDecoder();
      try {
        for await (const chunk of answer.body ?? []) text += decoder.decode(chunk, { stream: true });
      } catch {
        return `${text}|`;
      }
      return text;
    };
    await faulty(service, { cut_after: 11 });
    const cut = await images(service, fox);
    expect([cut.status, await readAll(cut)]).toEqual([200, expect.stringMatching(/^\{"created":\|$/)]);
    await faulty(service, { cut_after: 4, status: 503 });
    const failed = await images(service, fox);
    expect([failed.status, await readAll(failed)]).toEqual([503, "{\n  |"]);
    await faulty(service, { cut_after: 1_000_000 });
    expect(await readAll(await images(service, fox))).toMatch(/^\{"created":.*\}$/);
    await faulty(service, { cut_after: 0 });
    const none = await images(service, fox);
    expect([none.status, await readAll(none)]).toEqual([200, "|"]);
  });

  it("[FAULT-1] delays an answer: who does not wait for it is charged nothing", async () => {
    const { service, provider } = await bench();
    await faulty(service, { delay_ms: 600_000 });
    await expect(images(service, fox, { signal: AbortSignal.timeout(50) })).rejects.toThrow();
    expect(provider.requests).toEqual([]);
    await faulty(service, { delay_ms: 1 });
    expect((await images(service, fox)).status).toBe(200);
  });

  it("[FAULT-2] belongs to the test that its header names, as the journal does", async () => {
    const { service } = await bench();
    await order(service, { times: 2, status: 500 }, "a");
    const of = (test: string) => ({ headers: { "x-imgbatch-test": test } });
    expect((await images(service, fox)).status).toBe(200);
    expect((await images(service, fox, of("b"))).status).toBe(200);
    expect((await images(service, fox, of("a"))).status).toBe(500);
    expect((await journal(service, "b")).requests).toHaveLength(1);
    expect((await call(service, "DELETE", PATHS.testRequests, "b")).status).toBe(204);
    expect((await journal(service, "b")).requests).toEqual([]);
    expect((await journal(service, "a")).requests).toHaveLength(1);
    await call(service, "DELETE", PATHS.testFaults, "b");
    expect((await images(service, fox, of("a"))).status).toBe(500);
  });

  it("[FAULT-3] is refused with the name of the field that is wrong, and changes nothing", async () => {
    const { service } = await bench();
    const wrong: [fault: unknown, param: string, words: RegExp][] = [
      [{ statsu: 500 }, "statsu", /no field of a fault; did you mean status\?/],
      [{ status: 200 }, "status", /whole number from 400 to 599/],
      [{ status: "500" }, "status", /whole number from 400 to 599/],
      [{ status: 500, times: 0 }, "times", /whole number from 1/],
      [{ status: 500, share: 1.5 }, "share", /above 0, at most 1/],
      [{ status: 500, share: 0.5, times: 2 }, "share", /beside times/],
      [{ status: 500, surface: "azure" }, "surface", /must be openai or google/],
      [{ status: 500, model: "" }, "model", /text of 1 to 200/],
      [{ status: 500, retry_after: -1 }, "retry_after", /from 0 to 86400/],
      [{ delay_ms: 5, retry_after: 1 }, "retry_after", /needs status/],
      [{ delay_ms: 1e9 }, "delay_ms", /from 0 to 600000/],
      [{ cut_after: 1.5 }, "cut_after", /whole number/],
      [{ lost: false }, "lost", /must be true/],
      [{ lost: true, cut_after: 3 }, "cut_after", /beside lost/],
      [{ empty: true, refuse: "x" }, "refuse", /beside empty/],
      [{ times: 2, model: "x" }, "status", /the fault does nothing/],
      [[], "body", /object/],
    ];
    for (const [fault, param, words] of wrong) {
      const answer = await order(service, fault);
      const { error } = await answer.json();
      expect([fault, answer.status, error.param]).toEqual([fault, 400, param]);
      expect(error.message).toMatch(words);
    }
    const broken = await order(service, "{");
    expect([broken.status, (await broken.json()).error.code]).toEqual([400, "INVALID_JSON"]);
    const named = await order(service, { status: 500 }, "ü");
    expect((await named.json()).error.param).toBe("x-imgbatch-test");
    expect((await (await call(service, "GET", PATHS.testFaults)).json()).faults).toEqual([]);
  });
});

describe("the journal of a service for tests", () => {
  it("[FAULT-2] has each request with its body and the status of its answer, without keys and long images", async () => {
    const { service } = await bench();
    const key = service.credentials.api_key;
    const png = Buffer.concat([await tinyPng(), Buffer.alloc(600)]);
    await images(service, { ...fox, prompt: `a fox with ${key}` });
    await images(service, fox, { headers: { authorization: "Bearer wrong" } });
    await generateContent(service, content("in autumn", {}, [imagePart(png)]));
    await edit(
      service,
      form(["prompt", "in winter"], ["image", await tinyPng()], ["image", await tinyPng()]),
    );
    await call(service, "GET", `${PATHS.sharedModels}?pageSize=2`);
    await call(service, "GET", "/v1/imagess");
    await images(service, "{");
    const { requests, forgotten } = await journal(service);
    expect(forgotten).toBe(0);
    const parts = [
      { text: "in autumn" },
      { inlineData: { mimeType: "image/png", data: expect.any(String) } },
    ];
    const file = expect.stringMatching(/^\(image\.png, \d+ bytes of image\/png\)$/);
    expect(requests).toEqual([
      {
        method: "POST",
        path: "/v1/images/generations",
        body: { ...fox, prompt: "a fox with imgb_…" },
        answer: { status: 200 },
      },
      { method: "POST", path: "/v1/images/generations", body: fox, answer: { status: 401 } },
      {
        method: "POST",
        path: `/v1beta/models/${MODEL}:generateContent`,
        body: expect.objectContaining({ contents: [{ role: "user", parts }] }),
        answer: { status: expect.any(Number) },
      },
      {
        method: "POST",
        path: "/v1/images/edits",
        body: { prompt: "in winter", image: [file, file] },
        answer: { status: expect.any(Number) },
      },
      { method: "GET", path: "/v1/models", body: null, answer: { status: 200 } },
      { method: "GET", path: "/v1/imagess", body: null, answer: { status: 404 } },
      { method: "POST", path: "/v1/images/generations", body: "{", answer: { status: 400 } },
    ]);
    expect(JSON.stringify(requests)).toMatch(/"data":"\(\d+ characters of Base64\)"/);
    expect(JSON.stringify(requests)).not.toContain(key);
  });

  it("[FAULT-2] keeps the last thousand requests, and counts the others", () => {
    const journal = new TestBench();
    const note = (path: string, body: string | null, test: string | null) =>
      journal.note({ method: "GET", path, body, answer: { status: 200 } }, test);
    note("/b", null, "b");
    for (let i = 0; i < 1003; i++) note(`/${i}`, null, null);
    const { requests, forgotten } = journal.requests(null);
    expect([requests.length, requests[0]?.path, forgotten]).toEqual([1000, "/3", 3]);
    expect(journal.requests("b")).toEqual({ requests: [], forgotten: 1 });
    for (let i = 0; i < 40; i++) note("/long", "x".repeat(1024 * 1024), "c");
    expect(journal.requests("c").requests.length).toBeLessThan(32);
    journal.clearRequests("c");
    expect(journal.requests("c")).toEqual({ requests: [], forgotten: 0 });
  });
});

it("[FAULT-3] a service that is not for tests has neither, and says where they are", async () => {
  const service = await startTestService({ workers: false });
  const answer = await order(service, { status: 500 });
  const { error } = await answer.json();
  expect([answer.status, error.code]).toEqual([404, "NOT_FOUND"]);
  expect(error.message).toContain("imgbatch serve --test");
});
