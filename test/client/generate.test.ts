import { createServer } from "node:http";
import { gzipSync } from "node:zlib";
import { expect, it, onTestFinished } from "vitest";
import { createRateLimiter, generateImage, listRealtimeModels } from "../../src/client/realtime.ts";
import { createServiceHttp } from "../../src/client/service-http.ts";
import type { Http } from "../../src/http/http.ts";
import { type FakeNative, type NativeAnswer, startFakeNative, withImages } from "../support/fake-native.ts";
import { FAKE_KEY, png } from "../support/fake-service.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { listening } from "../support/listening.ts";

const JPEG = Buffer.concat([Buffer.from([0xff, 0xd8, 0xff, 0xe0, 0, 2]), Buffer.from([0xff, 0xd9])]);
const REQUEST: Parameters<typeof generateImage>[1] = {
  model: "vendorx-3.1-flash-image",
  prompt: "a fox",
  images: [],
  aspectRatio: null,
  size: null,
  seed: null,
  mimeType: null,
  quality: null,
  background: null,
  negativePrompt: null,
};

interface Wire {
  fake: FakeNative;
  http: Http;
  clock: InstantClock;
}

async function wire(...answers: NativeAnswer[]): Promise<Wire> {
  const fake = await startFakeNative();
  onTestFinished(() => fake.close());
  fake.answer(/./, ...answers);
  const clock = new InstantClock();
  const http = createServiceHttp({ baseUrl: fake.url, apiKey: FAKE_KEY, clock, random: () => 0.5 });
  return { fake, http, clock };
}

const error = (status: number, more: object = {}) => ({ status, message: "Busy.", ...more });
const empty = { body: { candidates: [{ finishReason: "NO_IMAGE", index: 0 }] } };

it("interim images of a model that thinks are passed over", async () => {
  const final = png("final");
  const inline = (image: Buffer) => ({
    inlineData: { mimeType: "image/png", data: image.toString("base64") },
  });
  const parts = [
    { thought: true, ...inline(png("draft")) },
    { text: null },
    { thoughtSignature: "x" },
    inline(final),
  ];
  const { http } = await wire({ body: { candidates: [{ content: { parts }, finishReason: null }] } });
  const made = await generateImage(http, REQUEST);
  expect(made.data.equals(final)).toBe(true);
  expect(made).toMatchObject({ modelVersion: null, text: "", usage: null });
});

it("Base64 of the other alphabet and without padding is read", async () => {
  const body = withImages([JPEG]);
  const text = JSON.stringify(body).replaceAll("/", "_").replaceAll("+", "-").replace(/=+"/, '"');
  const { http } = await wire({ body: text });
  expect((await generateImage(http, REQUEST)).data.equals(JPEG)).toBe(true);
});

const withData = (data: string) => ({
  body: { candidates: [{ content: { parts: [{ inlineData: { mimeType: "image/png", data } }] } }] },
});
const half = (image: Buffer) => withData(image.subarray(0, image.length - 9).toString("base64"));
const WITHOUT_IMAGE: [string, NativeAnswer, RegExp][] = [
  ["has no candidates", { body: {} }, /no candidates/],
  ["has an empty list of candidates", { body: { candidates: [] } }, /no candidates/],
  ["is a list", { body: [] }, /no candidates/],
  ["gives a reason for no image", empty, /NO_IMAGE/],
  ["has text only", { images: [], more: {} }, /STOP: Here/],
  ["has empty data", withData(""), /no finish reason/],
  ["has Base64 that does not decode", withData("iVBORw0KGgo*"), /does not decode/],
  ["has Base64 of a wrong length", withData("iVBORw0KGgoAA"), /does not decode/],
  [
    "has nothing but padding before a digit",
    withData(`${"=".repeat(2_000_000)}A`),
    /does not decode|neither PNG/,
  ],
  ["has bytes that are no image", withData(Buffer.from("<svg/>").toString("base64")), /neither PNG/],
  ["has half a PNG", half(png("x")), /not whole: it has no IEND/],
  ["has half a JPEG", withData(JPEG.subarray(0, 6).toString("base64")), /not whole: it has no end-of-image/],
];
for (const [what, answer, why] of WITHOUT_IMAGE) {
  it(`a 200 that ${what} is no success: it is tried again once, then it is an error`, async () => {
    const { fake, http, clock } = await wire(answer, answer);
    await expect(generateImage(http, REQUEST)).rejects.toMatchObject({
      code: "NO_IMAGES",
      message: expect.stringMatching(why),
      requestId: "req_native",
    });
    expect(fake.requests).toHaveLength(2);
    expect(clock.sleepsMs).toEqual([250]);
  });
}

const REFUSALS: [NativeAnswer, RegExp][] = [
  [{ body: { promptFeedback: { blockReason: "PROHIBITED_CONTENT" } } }, /the prompt \(PROHIBITED_CONTENT\)/],
  [
    { body: { promptFeedback: { blockReason: "OTHER", blockReasonMessage: "Not this." } } },
    /the prompt \(OTHER\): Not this\.$/,
  ],
  [
    { body: { candidates: [{ finishReason: "IMAGE_SAFETY", finishMessage: "Too sharp.", index: 0 }] } },
    /make this image \(IMAGE_SAFETY\): Too sharp\.$/,
  ],
  [{ body: { candidates: [{ content: {}, finishReason: "RECITATION" }] } }, /RECITATION/],
];
for (const [answer, why] of REFUSALS) {
  it(`a refusal is an error of its own with its reason, and is not tried again: ${why.source}`, async () => {
    const { fake, http } = await wire(answer);
    await expect(generateImage(http, REQUEST)).rejects.toMatchObject({
      code: "IMAGE_REFUSED",
      message: expect.stringMatching(why),
    });
    expect(fake.requests).toHaveLength(1);
  });
}

it("empty answers and errors share the three retries", async () => {
  const { fake, http } = await wire(error(503), empty, error(503), error(503), error(503));
  await expect(generateImage(http, REQUEST)).rejects.toMatchObject({ httpStatus: 503 });
  expect(fake.requests).toHaveLength(4);
});

it("an answer that breaks off may be billed, also without another attempt", async () => {
  const { fake, http } = await wire({ cutAt: 40 });
  const thrown = generateImage(http, REQUEST, { maxRetries: 0 });
  await expect(thrown).rejects.toThrow(/the image may be billed\.$/);
  expect(fake.requests).toHaveLength(1);
});

it("an answer that breaks off is asked for as often as others where the service has taken the key", async () => {
  const taken = { "idempotency-replayed": "false" };
  const { fake, http } = await wire(...Array.from({ length: 4 }, () => ({ cutAt: 40, headers: taken })));
  const thrown = await generateImage(http, REQUEST).catch((error) => error);
  expect(thrown).toMatchObject({ code: "NETWORK" });
  expect(thrown.message).not.toContain("billed");
  expect(fake.requests).toHaveLength(4);
});

it("a refused connection has sent nothing, so nothing may be billed; a broken one may", async () => {
  const { fake, http } = await wire({ reset: true }, { reset: true });
  const because = async () => (await generateImage(http, REQUEST, { maxRetries: 1 }).catch((e) => e)).because;
  expect(await because()).toBeUndefined();
  await fake.close();
  expect(await because()).toBe("ECONNREFUSED");
});

const keysOf = ({ requests }: FakeNative) => requests.map(({ headers }) => headers["idempotency-key"]);

it("all attempts for an image have one key, and another image has another", async () => {
  const { fake, http } = await wire(error(503), { reset: true }, { cutAt: 40 });
  await generateImage(http, REQUEST);
  await generateImage(http, REQUEST);
  const [first, ...others] = keysOf(fake);
  expect(first).toMatch(/^ib1-now-[0-9a-f]{32}$/);
  expect(others.slice(0, 3)).toEqual([first, first, first]);
  expect(others[3]).not.toBe(first);
});

it("an image that was not made is asked for with another key", async () => {
  const { fake, http } = await wire(error(503), empty, error(503));
  await generateImage(http, REQUEST, { idempotencyKey: "k" });
  expect(keysOf(fake)).toEqual(["k", "k", "k-2", "k-2"]);
});

it("an error that the service repeats is not asked for again", async () => {
  const replayed = (value: string) => error(504, { headers: { "idempotency-replayed": value } });
  const { fake, http } = await wire(replayed("false"), replayed("true"));
  await expect(generateImage(http, REQUEST)).rejects.toMatchObject({ httpStatus: 504 });
  expect(fake.requests).toHaveLength(2);
});

it("the pause that the server asks for is kept: RetryInfo first, then Retry-After", async () => {
  const info = { "@type": "type.googleapis.com/google.rpc.RetryInfo", retryDelay: "1.5s" };
  const { http, clock } = await wire(
    error(429, { details: [info], headers: { "retry-after": "9" } }),
    error(429, { headers: { "retry-after": "9" } }),
  );
  await generateImage(http, REQUEST);
  expect(clock.sleepsMs).toEqual([1500, 9000]);
});

it("an error names the code of this kind of service, the field at fault and the request", async () => {
  const details = [
    {
      "@type": "type.googleapis.com/google.rpc.BadRequest",
      fieldViolations: [{ field: "generationConfig.imageConfig.aspectRatio", description: "?" }],
    },
    {
      "@type": "type.googleapis.com/google.rpc.ErrorInfo",
      reason: "REALTIME_GROUP_NOT_NATIVE",
      domain: "imgbatch",
    },
  ];
  const { http } = await wire(error(400, { details }));
  await expect(generateImage(http, REQUEST)).rejects.toMatchObject({
    code: "REALTIME_GROUP_NOT_NATIVE",
    message: "Busy.",
    param: "generationConfig.imageConfig.aspectRatio",
    requestId: "req_native",
  });
});

it("an answer is read up to a bound, and the key that it repeats is taken out", async () => {
  const words = { ...withImages([png("x")]), modelVersion: `for ${FAKE_KEY}` };
  const { http } = await wire({ body: words });
  expect((await generateImage(http, REQUEST)).modelVersion).toBe("for [API key]");
  // As many parts as it takes: packing all at once would take longer than the rest.
  const bomb = Buffer.concat(Array(193).fill(gzipSync(Buffer.alloc(1024 * 1024, 32))));
  const packed = createServer((_, response) => {
    response.writeHead(200, { "content-encoding": "gzip" }).end(bomb);
  });
  const baseUrl = await listening(packed);
  const other = createServiceHttp({ baseUrl, apiKey: FAKE_KEY, clock: new InstantClock(), random: () => 0 });
  await expect(generateImage(other, REQUEST)).rejects.toThrow("has no end");
});

it("what a 4K image takes in Base64 is read", async () => {
  const chunk = Buffer.alloc(40e6);
  chunk.writeUInt32BE(chunk.length - 12);
  const large = Buffer.concat([png("x").subarray(0, 33), chunk, png("x").subarray(33)]);
  const { http } = await wire({ images: [large] });
  expect((await generateImage(http, { ...REQUEST, size: "4K" })).data.equals(large)).toBe(true);
});

it("in any minute no more requests leave than asked for, retries among them", async () => {
  const clock = new InstantClock(0);
  const pace = createRateLimiter(2, clock);
  const passedAtMs: number[] = [];
  for (let i = 0; i < 5; i++) {
    await pace();
    passedAtMs.push(clock.nowMs());
    await clock.sleep(1000);
  }
  expect(passedAtMs).toEqual([0, 1000, 60_000, 61_000, 120_000]);

  const { http } = await wire(error(503), error(503));
  let asked = 0;
  const counting = async () => {
    asked++;
  };
  await generateImage(http, REQUEST, { awaitTurnToSend: counting });
  expect(asked).toBe(3);
});

it("a caller that gives up while it waits delays no other", async () => {
  const clock = new InstantClock(0);
  const pace = createRateLimiter(1, clock);
  const gone = new AbortController();
  const first = pace();
  gone.abort(new Error("gone"));
  const second = pace(gone.signal);
  const third = pace();
  await first;
  await expect(second).rejects.toThrow("gone");
  await third;
  expect(clock.nowMs()).toBe(60_000);
});

it("the list of real-time models is read over all pages, without models that make no content", async () => {
  const { fake, http } = await wire();
  expect((await listRealtimeModels(http)).map(({ id }) => id)).toEqual([
    "vendorx-3.1-flash-image",
    "vendorx-3-pro-image",
  ]);
  const pricing = { currency: "usd", images: { "1K": 0.067, "4K": 0.151 } };
  fake.models = [{ name: "models/a", imageSizes: ["1K"], maxInputImages: 3, pricing }, { nonsense: true }];
  expect(await listRealtimeModels(http)).toMatchObject([
    {
      id: "a",
      imageSizes: ["1K"],
      aspectRatios: null,
      maxInputImages: 3,
      costsMicroUsd: { "1K": 67_000, "4K": 151_000 },
    },
  ]);
});

it("a list of models without an end is given up", async () => {
  let pages = 0;
  const http: Http = {
    baseUrl: "",
    json: async () => {
      const json = { models: [], nextPageToken: String(++pages) };
      return { json, headers: new Headers(), requestId: undefined, bytes: 0 };
    },
    stream: async () => Promise.reject(new Error("unused")),
  };
  await expect(listRealtimeModels(http)).rejects.toMatchObject({ code: "BAD_RESPONSE" });
});
