import { describe, expect, it } from "vitest";
import { imageSizePx, RATIOS } from "../../../src/contract/image-formats.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { Decoding } from "../../../src/imaging/decoding.ts";
import { sharpInspector } from "../../../src/imaging/sharp-images.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { createProceduralProvider } from "../../../src/providers/procedural/provider.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeProvider, FakeUpstream, made, tinyJpeg, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import {
  answerOf,
  content,
  errorOf,
  generate,
  imagePart,
  imagesOf,
  picture,
} from "../../support/realtime.ts";
import { MODEL, openBeside, startTestService } from "../../support/service.ts";

const inspector = sharpInspector(new Decoding());

const start = (provider: FakeProvider, config: object = {}) =>
  startTestService({ workers: false, providers: [provider], config });

const drawing = () =>
  createProceduralProvider({ name: "procedural", concurrency: 2, models: () => true, clock: systemClock });

const NO_IMAGE: [string, object][] = [
  ["[[refuse]] x", { promptFeedback: { blockReason: "PROHIBITED_CONTENT" } }],
  ["[[fail:SAFETY_BLOCKED]] x", { promptFeedback: { blockReason: "PROHIBITED_CONTENT" } }],
  ["[[empty]] x", { candidates: [{ finishReason: "NO_IMAGE", index: 0 }] }],
  ["[[fail:EMPTY_IMAGE_OUTPUT]] x", { candidates: [{ finishReason: "NO_IMAGE", index: 0 }] }],
];

/** Directive, HTTP status, its name, seconds to wait. */
const FAILURES: [string, number, string, string | null][] = [
  ["[[fail:PROVIDER_ITEM_FAILED]]", 500, "INTERNAL", null],
  ["[[fail:PROVIDER_TIMEOUT]]", 504, "DEADLINE_EXCEEDED", null],
  ["[[fail:PROVIDER_RATE_LIMITED]]", 429, "RESOURCE_EXHAUSTED", "5"],
  ["[[fail:INVALID_ARGUMENT]]", 400, "INVALID_ARGUMENT", null],
  ["[[fail:CANCELLED]]", 499, "CANCELLED", null],
  ["[[fail:RESULT_MISSING]]", 500, "INTERNAL", null],
  ["[[status:400]]", 400, "INVALID_ARGUMENT", null],
  ["[[status:401]]", 502, "UNAVAILABLE", null],
  ["[[status:429]][[retry-after:90s]]", 429, "RESOURCE_EXHAUSTED", "90"],
  ["[[status:500]]", 500, "INTERNAL", null],
  ["[[status:502]]", 502, "UNAVAILABLE", null],
  ["[[status:503]][[retry-after:1s]]", 503, "UNAVAILABLE", "1"],
  ["[[status:504]]", 504, "DEADLINE_EXCEEDED", null],
  ["[[bad-bytes]]", 500, "INTERNAL", null],
  ["[[nonsense]]", 400, "INVALID_ARGUMENT", null],
];

/** Of an image, as the vendor publishes them. */
const TOKENS: Record<string, Record<string, number>> = {
  [MODEL]: { "1K": 1120, "2K": 1680, "4K": 2520 },
  "vendorx-3-pro-image": { "1K": 1120, "2K": 1120, "4K": 2000 },
};

async function expectUntouched(data: string) {
  const { stores } = await openBeside(data);
  // A failure is answered before its hold is released.
  await expect
    .poll(() => stores.read.accounts.byName("default"))
    .toMatchObject({ balanceMicroUsd: 1e9, heldMicroUsd: 0 });
  expect(await stores.read.usage.list()).toEqual([]);
}

it("a chat with more pictures of the model than it takes goes on without the oldest of them, and says so", async () => {
  const takes = { maxReferences: 2, ratios: "any", tiers: "any" } as const;
  const upstream = new FakeUpstream("vendor", { isFree: true, takes });
  const service = await start(upstream);
  const pictures = await Promise.all([1, 2, 3, 4].map((seed) => tinyPng(seed)));
  const turn = (role: string, ...parts: object[]) => ({ role, parts });
  const [photo, ...made] = pictures.map((bytes) => imagePart(bytes));
  const edits = made.flatMap((image, i) => [turn("model", image), turn("user", { text: `edit ${i}` })]);
  const contents = [turn("user", { text: "paint this" }, photo ?? {}), ...edits];
  const answer = await generate(service, { ...content("x"), contents });
  expect([answer.status, answer.headers.get("x-imgbatch-ignored")]).toEqual([
    200,
    expect.stringContaining("contents[1].parts[0], contents[3].parts[0]"),
  ]);
  await answer.arrayBuffer();
  const sent = await Promise.all((upstream.requests[0]?.references ?? []).map(({ read }) => read()));
  // The person's own picture stays, and the newest of the model's.
  expect(sent).toEqual([pictures[0], pictures[3]]);
  const own = [1, 2, 3].map((i) => turn("user", { text: `photo ${i}` }, photo ?? {}));
  const tooMany = await generate(service, { ...content("x"), contents: own });
  expect([tooMany.status, (await errorOf(tooMany)).message]).toEqual([
    400,
    expect.stringContaining("contents"),
  ]);
  expect(upstream.requests).toHaveLength(1);
});

describe("an image in real time", () => {
  it("[RT-8] has exactly the pixels of its size and ratio, and the format asked for", async () => {
    const service = await startTestService({ workers: false, providers: [drawing()] });
    for (const [imageConfig, mimeType, size] of [
      [{ aspectRatio: "21:9" }, "image/png", [1584, 672]],
      [{ aspectRatio: "1:8", outputMimeType: "image/jpeg" }, "image/jpeg", [384, 3072]],
      [{ image_size: "2K", imageOutputOptions: { mimeType: "image/webp" } }, "image/webp", [2048, 2048]],
    ] as const) {
      const answer = await answerOf(await generate(service, content("a fox", imageConfig)));
      const [image] = imagesOf(answer);
      const facts = await inspector.inspect(image?.bytes ?? Buffer.alloc(0), { maxPixels: 1e8 });
      expect(facts).toMatchObject({ mimeType, widthPx: size[0], heightPx: size[1] });
      expect(image?.mimeType).toBe(mimeType);
    }
  });

  it("[RT-8] is asked of the provider with the pixels of the table, for every model, size and ratio", async () => {
    const provider = new FakeProvider();
    const png = await tinyPng();
    provider.answer = () => made(png);
    const service = await start(provider, { limits: { requestsPerMinute: 0 } });
    const expected = [];
    for (const model of [MODEL, "vendorx-3-pro-image"]) {
      for (const imageSize of ["1K", "2K", "4K"] as const) {
        for (const aspectRatio of RATIOS.extended.slice(0, model === MODEL ? 14 : 10)) {
          const answer = await generate(service, content("fox", { imageSize, aspectRatio }), { model });
          const { usageMetadata, ...made } = await answerOf(answer);
          expect(imagesOf(made)).toHaveLength(1);
          expect(usageMetadata?.candidatesTokenCount).toBe(TOKENS[model]?.[imageSize]);
          expected.push({ model, pixels: imageSizePx(imageSize, aspectRatio) });
        }
      }
    }
    expect(provider.requests.map(({ model, pixels }) => ({ model, pixels }))).toEqual(expected);
  });

  it("[RT-8] is half as wide and high at 512, where the model has that size", async () => {
    const config = { vendor: { preset: "google", keyHeaders: ["x-vendorx-api-key"] } };
    const service = await startTestService({ workers: false, providers: [drawing()], config });
    const half = { imageSize: "512", aspectRatio: "2:3" };
    const answer = await answerOf(
      await generate(service, content("a fox", half), { model: "gemini-3.1-flash-image" }),
    );
    const [image] = imagesOf(answer);
    const facts = await inspector.inspect(image?.bytes ?? Buffer.alloc(0), { maxPixels: 1e8 });
    expect(facts).toMatchObject({ widthPx: 424, heightPx: 632 });
    expect(answer.usageMetadata).toMatchObject({ candidatesTokenCount: 747 });
    const { stores } = await openBeside(service.data);
    expect(await stores.read.usage.list()).toMatchObject([{ size: "512" }]);
    const refused = await generate(service, content("a fox", half), { model: "gemini-3-pro-image" });
    expect((await errorOf(refused)).message).toContain("this model makes 1K, 2K, 4K");
  });

  it("[RT-8] of an edit keeps the ratio of the input image, and the provider gets its bytes", async () => {
    const provider = new FakeProvider();
    const service = await start(provider);
    const photo = await picture({ widthPx: 400, heightPx: 300 });
    const body = content("狐狸 in snow", {}, [imagePart(photo)]);
    const { usageMetadata } = await answerOf(await generate(service, body));
    // A token for four bytes of text, and those of an image of the model's family.
    expect(usageMetadata).toMatchObject({ promptTokenCount: 4 + 258, totalTokenCount: 4 + 258 + 1120 });
    const [request] = provider.requests;
    expect(request).toMatchObject({
      options: { ratio: "4:3", size: "1K" },
      pixels: { widthPx: 1200, heightPx: 896 },
    });
    expect((await request?.references[0]?.read())?.equals(photo)).toBe(true);
  });

  it("is answered with its type as it is, honest counts, a version and an id", async () => {
    const provider = new FakeProvider();
    const jpeg = await tinyJpeg();
    provider.answer = () => made(jpeg);
    const service = await start(provider);
    for (const prefix of ["/v1beta", "/v1"]) {
      const answer = await generate(service, content("a red fox"), { prefix });
      expect(answer.headers.get("x-request-id")).toMatch(/^req_/);
      expect(await answer.json()).toEqual({
        candidates: [
          {
            content: {
              role: "model",
              parts: [{ inlineData: { mimeType: "image/jpeg", data: jpeg.toString("base64") } }],
            },
            finishReason: "STOP",
            index: 0,
          },
        ],
        usageMetadata: {
          promptTokenCount: 3,
          candidatesTokenCount: 1120,
          totalTokenCount: 1123,
          promptTokensDetails: [{ modality: "TEXT", tokenCount: 3 }],
          candidatesTokensDetails: [{ modality: "IMAGE", tokenCount: 1120 }],
        },
        modelVersion: "fake/1",
        responseId: expect.stringMatching(/^gen_[0-9a-f]{20}$/),
      });
    }
  });

  it("of a mapped model is made by the other, with the rules and price of the one asked for", async () => {
    const models = [
      { id: "wide", ratios: "extended", sizes: ["1K"], prices: { "1K": 0.5 }, mapsTo: "vendorx-3-pro-image" },
      { id: "vendorx-3-pro-image", prices: { "1K": 3 } },
    ];
    const service = await startTestService({ workers: false, providers: [drawing()], config: { models } });
    const answer = await answerOf(
      await generate(service, content("fox", { aspectRatio: "8:1" }), { model: "wide" }),
    );
    expect(answer.modelVersion).toMatch(/^vendorx-3-pro-image \(procedural\/\d+\)$/);
    const { stores } = await openBeside(service.data);
    expect(await stores.read.usage.list()).toMatchObject([
      { model: "wide", executedModel: "vendorx-3-pro-image", amountMicroUsd: 500_000, ratio: "8:1" },
    ]);
  });

  it("names the model that ran when the upstream does not", async () => {
    const provider = new FakeProvider();
    provider.answer = async () => ({ ...made(await tinyPng()), modelVersion: null });
    const service = await start(provider, { models: [{ id: "a", prices: { "1K": 1 }, mapsTo: "b" }] });
    expect((await answerOf(await generate(service, content("x"), { model: "a" }))).modelVersion).toBe("b");
    expect(provider.requests[0]?.model).toBe("b");
  });

  it("is refused for the first reason of a fixed order", async () => {
    const service = await startTestService({
      workers: false,
      providers: [],
      config: {
        limits: { realtimeBodyBytes: 1000, concurrentRequests: 0 },
        models: [{ id: "a", prices: { "1K": 2000 } }],
      },
    });
    const ask = async (body: unknown, model = "a", key = service.credentials.api_key) => {
      const answer = await generate(service, body, { model, headers: { "x-vendorx-api-key": key } });
      return [answer.status, (await errorOf(answer)).status];
    };
    const large = "x".repeat(2000);
    expect(await ask(large, "nope", "wrong")).toEqual([401, "UNAUTHENTICATED"]);
    expect(await ask(large, "nope")).toEqual([404, "NOT_FOUND"]);
    expect(await ask(large)).toEqual([413, "INVALID_ARGUMENT"]);
    expect(await ask("{}")).toEqual([400, "INVALID_ARGUMENT"]);
    expect(await ask(content("x"))).toEqual([503, "UNAVAILABLE"]);
    const type = { "content-type": "text/plain" };
    const plain = await generate(service, content("x"), { model: "a", headers: type });
    expect([plain.status, (await errorOf(plain)).status]).toEqual([415, "INVALID_ARGUMENT"]);
  });

  it("obeys the directives of the user's last turn alone, and draws the whole conversation", async () => {
    const service = await startTestService({ workers: false, providers: [drawing()] });
    const ask = async (...turns: string[]) => {
      const contents = turns.map((text, i) => ({ role: i % 2 ? "model" : "user", parts: [{ text }] }));
      return generate(service, { ...content(""), contents });
    };
    const bytesOf = async (answer: Response) => imagesOf(await answerOf(answer))[0]?.bytes.toString("base64");
    const failing = "a fox [[fail:PROVIDER_ITEM_FAILED]]";
    expect((await errorOf(await ask("a hen", "done", failing))).code).toBe(500);
    const after = await bytesOf(await ask(`${failing} [[broken`, "sorry", "in autumn"));
    expect(after).toBeDefined();
    expect(after).not.toBe(await bytesOf(await ask("in autumn")));
    const counts = async (answer: Response) => (await answerOf(answer)).usageMetadata?.promptTokenCount;
    expect(await counts(await ask("12345678", "done", "abc"))).toBe(3);
  });

  it("is also asked for with an encoded colon; in an id it stays what it is", async () => {
    const models = [
      { id: MODEL, prices: { "1K": 1 } },
      { id: "org:b", prices: { "1K": 1 } },
    ];
    const service = await start(new FakeProvider(), { models });
    const ask = async (method: string, path: string) => {
      const headers = {
        "x-vendorx-api-key": service.credentials.api_key,
        "content-type": "application/json",
      };
      const body = method === "GET" ? null : JSON.stringify(content("x"));
      const answer = await fetch(`${service.url}${path}`, { method, headers, body });
      return [answer.status, await answer.text()] as const;
    };
    for (const prefix of ["/v1beta", "/v1"]) {
      const at = `${prefix}/models/${MODEL}`;
      for (const colon of ["%3A", "%3a"]) {
        expect((await ask("POST", `${at}${colon}generateContent`))[0]).toBe(200);
        const [status, events] = await ask("POST", `${at}${colon}streamGenerateContent?alt=sse`);
        expect([status, events.startsWith("data: ")]).toEqual([200, true]);
        const [unknown, text] = await ask("POST", `${at}${colon}countTokens`);
        expect([unknown, JSON.parse(text).error.status]).toEqual([404, "NOT_FOUND"]);
        expect((await ask("GET", `${at}${colon}generateContent`))[0]).toBe(405);
      }
      expect(JSON.parse((await ask("GET", `${prefix}/models/org%3Ab`))[1]).name).toBe("models/org:b");
    }
  });
});

describe("what a provider does instead of an image", () => {
  it("a refusal and an empty answer are answers without an image, and free", async () => {
    const service = await startTestService({ workers: false, providers: [drawing()] });
    for (const [prompt, expected] of NO_IMAGE) {
      const answer = await generate(service, content(prompt));
      expect(answer.status).toBe(200);
      const body = await answerOf(answer);
      expect(body).toMatchObject({ ...expected, usageMetadata: { candidatesTokenCount: 0 } });
      expect(body.modelVersion).toMatch(/\(procedural\//);
      expect("candidates" in body).toBe("candidates" in expected);
    }
    await expectUntouched(service.data);
  });

  it("[RT-11] a failure has the status that says whether to come back, and is free", async () => {
    const service = await startTestService({ workers: false, providers: [drawing()] });
    for (const [prompt, status, name, retryAfter] of FAILURES) {
      const answer = await generate(service, content(`${prompt} x`));
      const error = await errorOf(answer);
      const facts = [prompt, answer.status, error.code, error.status, answer.headers.get("retry-after")];
      expect(facts).toEqual([prompt, status, status, name, retryAfter]);
      const delays = error.details?.map((detail) => detail.retryDelay).filter((delay) => delay !== undefined);
      expect(delays).toEqual(retryAfter === null ? [] : [`${retryAfter}s`]);
    }
    await expectUntouched(service.data);
  });

  it("[RT-11] an unexpected failure is an internal error without details", async () => {
    const provider = new FakeProvider();
    provider.answer = () => Promise.reject(new Error("secret detail"));
    const service = await start(provider);
    const answer = await generate(service, content("x"));
    expect(answer.status).toBe(500);
    expect(await answer.text()).not.toContain("secret");
  });

  it("what fails only once in a batch does not fail here", async () => {
    const service = await startTestService({ workers: false, providers: [drawing()] });
    const answer = await generate(service, content("[[fail-once:PROVIDER_TIMEOUT]] x"));
    expect(imagesOf(await answerOf(answer))).toHaveLength(1);
  });
});

const SSE = { verb: "streamGenerateContent?alt=sse" };
const PLAIN = { verb: "streamGenerateContent" };
const SIGN = {
  candidates: [{ content: { role: "model", parts: [{ text: " ", thought: true }] }, index: 0 }],
};

/** A service whose provider waits for the gate, and whose time is ours. */
async function slowService() {
  const clock = new FakeClock();
  const [asked, end] = [gate(), gate()];
  const provider = new FakeProvider();
  provider.answer = async () => {
    asked.open();
    await end.promise;
    return made(await tinyPng());
  };
  const service = await startTestService({ workers: false, providers: [provider], clock });
  return { service, clock, asked, end };
}

/** The values of the events; every event must be one `data:` line and a blank one. */
function eventsOf(text: string): unknown[] {
  expect(text).toMatch(/^(data: .+\n\n)+$/);
  return text
    .split("\n\n")
    .slice(0, -1)
    .map((event) => JSON.parse(event.slice("data: ".length)));
}

describe("a stream", () => {
  it("is one event with the whole answer, and nothing but data lines", async () => {
    const service = await startTestService({ workers: false });
    for (const prefix of ["/v1beta", "/v1"]) {
      const answer = await generate(service, content("fox"), { ...SSE, prefix });
      expect(answer.headers.get("content-type")).toBe("text/event-stream");
      const events = eventsOf(await answer.text());
      expect(events).toHaveLength(1);
      expect(events[0]).toMatchObject({ candidates: [{ finishReason: "STOP" }], usageMetadata: {} });
    }
  });

  it("without alt=sse is a JSON array", async () => {
    const service = await startTestService({ workers: false });
    const answer = await generate(service, content("fox"), PLAIN);
    expect(answer.headers.get("content-type")).toContain("application/json");
    expect(await answer.json()).toMatchObject([{ candidates: [{ finishReason: "STOP" }] }]);
  });

  it("fails as an ordinary answer while nothing was sent", async () => {
    const service = await startTestService({ workers: false, providers: [] });
    const events = await generate(service, content("fox"), SSE);
    expect([events.status, (await errorOf(events)).status]).toEqual([503, "UNAVAILABLE"]);
    const array = await generate(service, content("fox"), PLAIN);
    expect([array.status, await array.json()]).toMatchObject([503, [{ error: { code: 503 } }]]);
    const other = await generate(service, content("fox"), { verb: "streamGenerateContent?alt=proto" });
    expect(other.status).toBe(400);
    await other.arrayBuffer();
  });

  it.each([
    [SSE, eventsOf],
    [PLAIN, (text: string) => JSON.parse(text)],
  ])("that takes long shows after 10 s, and every 15 s, that it is alive (%#)", async (target, parse) => {
    const { service, clock, asked, end } = await slowService();
    const pending = generate(service, content("fox"), target);
    await asked.promise;
    clock.advance(10_000);
    const answer = await pending;
    expect(answer.headers.get("x-accel-buffering")).toBe("no");
    let text = "";
    let signs = 0;
    for await (const chunk of answer.body ?? []) {
      text += Buffer.from(chunk).toString();
      if (text.split(JSON.stringify(SIGN)).length - 1 === signs) continue;
      signs++;
      if (signs < 3) clock.advance(15_000);
      else end.open();
    }
    const last = expect.objectContaining({ responseId: expect.any(String) });
    expect(parse(text)).toEqual([SIGN, SIGN, SIGN, last]);
  });

  it.each([
    [SSE, eventsOf],
    [PLAIN, (text: string) => JSON.parse(text)],
  ])("that fails on its way ends with the error (%#)", async (target, parse) => {
    const { service, clock, asked, end } = await slowService();
    const pending = generate(service, content("fox"), target);
    await asked.promise;
    clock.advance(10_000);
    const answer = await pending;
    end.fail(new ProviderError("PROVIDER_RATE_LIMITED", "slow down", { retryAfterMs: 2000 }));
    expect(answer.status).toBe(200);
    const error = expect.objectContaining({ code: 429, message: "slow down", status: "RESOURCE_EXHAUSTED" });
    expect(parse(await answer.text())).toEqual([SIGN, { error }]);
  });
});
