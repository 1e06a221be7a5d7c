import { describe, expect, it } from "vitest";
import { createOpenaiAdapter } from "../../../src/providers/openai/provider.ts";
import { asItemProvider } from "../../../src/providers/upstream/provider.ts";
import { closing, entryOf } from "../../support/upstream-adapter.ts";
import {
  byPath,
  bytes,
  depsWith,
  imageRequest,
  JPEG,
  json,
  never,
  PNG,
  providerError,
  type RequestChanges,
  reference,
  type ScriptedServer,
  type Seen,
  scriptedServer,
} from "../upstream/scripted-server.ts";

const KEY = "canary-openai-key-0123456789";
const deps = depsWith({ PAINTER_KEY: KEY });

const entryAt = (baseUrl: string, changes: object = {}) =>
  entryOf("openai", { name: "painter", baseUrl, apiKeyEnv: "PAINTER_KEY", ...changes });

const connect = (server: ScriptedServer, changes: object = {}) =>
  closing(createOpenaiAdapter(entryAt(`${server.url}/v1`, changes), deps));

const base64 = (...images: Buffer[]) => ({
  created: 1,
  data: images.map((each) => ({ b64_json: each.toString("base64") })),
});

const NOTHING = { quality: null, background: null, seed: null, negativePrompt: null };

/** Sends a request and returns what arrived. */
async function sent(changes: object, request: RequestChanges = {}): Promise<Seen> {
  const server = await scriptedServer(json(base64(PNG)));
  await connect(server, changes).generate(imageRequest(request), never, () => {});
  const [seen] = server.seen;
  if (seen === undefined) throw new Error("nothing arrived");
  return seen;
}

const bodyOf = async (changes: object, request: RequestChanges = {}) =>
  JSON.parse((await sent(changes, request)).text);

const failure = (server: ScriptedServer, changes: object = {}, request: RequestChanges = {}) =>
  providerError(connect(server, changes).generate(imageRequest(request), never, () => {}));

describe("a request in the form of OpenAI Images", () => {
  it("has model, prompt, size and format", async () => {
    const seen = await sent({}, { earlier: "at night" });
    expect(seen).toMatchObject({ method: "POST", url: "/v1/images/generations" });
    expect(seen.headers).toMatchObject({
      authorization: `Bearer ${KEY}`,
      "content-type": "application/json",
    });
    expect(JSON.parse(seen.text)).toEqual({
      model: "image-model",
      prompt: "at night\na red fox",
      size: "2528x1696",
      response_format: "b64_json",
    });
  });

  it("has no ratio to keep that of a reference, no format to omit it, and the key where the entry says", async () => {
    expect(await bodyOf({ responseFormat: "omit" })).not.toHaveProperty("response_format");
    const kept = { options: { keepsRatio: true }, references: [reference(PNG)] };
    expect((await sent({ sizeAs: "aspect_ratio" }, kept)).text).not.toContain("aspect_ratio");
    expect((await sent({}, kept)).text).toContain("2528x1696");
    expect(await bodyOf({ sizeAs: "aspect_ratio" }, { options: { keepsRatio: true } })).toMatchObject({
      aspect_ratio: "3:2",
    });
    const header = await sent({ auth: "api-key" });
    expect(header.headers).toMatchObject({ "api-key": KEY });
    expect(header.headers.authorization).toBeUndefined();
    expect((await sent({ apiKeyEnv: null })).headers.authorization).toBeUndefined();
  });

  it("has the extra fields, which win, but never for model and prompt", async () => {
    const extra = { quality: "low", size: "auto", model: "other", prompt: "other", nested: { a: [1] } };
    expect(await bodyOf({ extra })).toEqual({
      quality: "low",
      size: "auto",
      nested: { a: [1] },
      response_format: "b64_json",
      model: "image-model",
      prompt: "a red fox",
    });
  });

  it("asks OpenAI's own models for a type, and no other", async () => {
    const gpt = { model: "gpt-image-2", options: { mimeType: "image/jpeg" } } as const;
    expect(await bodyOf({}, gpt)).toEqual({
      model: "gpt-image-2",
      prompt: "a red fox",
      size: "2528x1696",
      output_format: "jpeg",
      quality: "medium",
    });
    expect((await bodyOf({}, { ...gpt, options: { mimeType: "image/webp" } })).output_format).toBe("webp");
    expect(await bodyOf({}, { model: "flux", options: { mimeType: "image/jpeg" } })).not.toHaveProperty(
      "output_format",
    );
    const server = await scriptedServer();
    expect(connect(server).takes).toEqual({
      maxReferences: 16,
      ratios: "any",
      tiers: "any",
      pixelsOf: expect.any(Function),
      options: ["quality", "background", "mask"],
      api: "openai",
    });
  });

  it("[OPT-6] has the quality, the background, the seed and the negative prompt that were asked for", async () => {
    const gpt = { model: "gpt-image-2.5-flare" };
    const webp = { mimeType: "image/webp" } as const;
    const transparent = { ...webp, quality: "high", background: "transparent" } as const;
    expect(await bodyOf({ extra: { quality: "low" } }, { ...gpt, options: transparent })).toMatchObject({
      quality: "high",
      background: "transparent",
      output_format: "webp",
    });
    const nothing = await bodyOf({}, { ...gpt, options: NOTHING });
    expect(nothing).toEqual(await bodyOf({}, gpt));
    expect(nothing.quality).toBe("medium");
    expect((await bodyOf({}, { ...gpt, defaultQuality: "low" })).quality).toBe("low");
    // A server that chooses the type by itself could choose JPEG.
    expect(await bodyOf({}, { options: { background: "transparent" } })).toMatchObject({
      output_format: "png",
      response_format: "b64_json",
    });
    const options = { ...NOTHING, seed: 5, negativePrompt: "text" };
    const together = { preset: "together", takes: ["seed", "negative_prompt"] };
    expect(await bodyOf(together, { options, seed: 5 })).toMatchObject({ seed: 5, negative_prompt: "text" });
    const server = await scriptedServer(json(base64(PNG)));
    const adapter = connect(server, together);
    expect(adapter.takes.options).toEqual(["quality", "background", "seed", "negativePrompt", "mask"]);
    expect((await adapter.generate(imageRequest({ options }), never, () => {})).seed).toBe(5);
  });

  it("[OPT-6] has the resolution as the entry says, beside the ratio", async () => {
    const byRatio = { sizeAs: "aspect_ratio", edits: "json" };
    const lower = { ...byRatio, resolution: "lower", extra: { resolution: "1k" } };
    expect((await bodyOf(lower)).resolution).toBe("2k");
    expect((await bodyOf(lower, { options: { size: "1K" } })).resolution).toBe("1k");
    expect((await bodyOf({ ...byRatio, resolution: "upper" })).resolution).toBe("2K");
    expect(await bodyOf({ ...byRatio, resolution: "upper" }, { options: { size: "1K" } })).not.toHaveProperty(
      "resolution",
    );
    const takes = (entry: object) => connect({ url: "http://127.0.0.1:9" } as ScriptedServer, entry).takes;
    expect(takes(byRatio)).toMatchObject({ tiers: ["1K"], options: ["quality", "background"] });
    expect(takes(lower).tiers).toBe("any");
  });

  it("[OPT-7] has a mask as a file of its form", async () => {
    const seen = await sent({}, { references: [reference(JPEG, "image/jpeg")], mask: reference(PNG) });
    const headers = { "content-type": seen.headers["content-type"] ?? "" };
    const form = await new Response(new Uint8Array(seen.body), { headers }).formData();
    const mask = form.get("mask") as File;
    expect([mask.name, mask.type]).toEqual(["mask.png", "image/png"]);
    expect(Buffer.from(await mask.arrayBuffer())).toEqual(PNG);
  });

  it("sends references as a form", async () => {
    const extra = { quality: "low", input: { a: 1 }, unset: null };
    const references = [reference(PNG), reference(JPEG, "image/jpeg")];
    const seen = await sent({ extra }, { references });
    expect(seen.url).toBe("/v1/images/edits");
    expect(Number(seen.headers["content-length"])).toBe(seen.body.length);
    const headers = { "content-type": seen.headers["content-type"] ?? "" };
    const form = await new Response(new Uint8Array(seen.body), { headers }).formData();
    const texts = [...form].filter(([, value]) => typeof value === "string");
    expect(Object.fromEntries(texts)).toEqual({
      model: "image-model",
      prompt: "a red fox",
      size: "2528x1696",
      response_format: "b64_json",
      quality: "low",
      input: '{"a":1}',
    });
    const files = form.getAll("image[]") as File[];
    expect(files.map(({ name, type }) => `${name} ${type}`)).toEqual([
      "reference-1.png image/png",
      "reference-2.jpg image/jpeg",
    ]);
    expect(Buffer.from(await (files[0] as File).arrayBuffer())).toEqual(PNG);
    const one = await sent({ editPath: "/edit" }, { references: [reference(PNG)] });
    expect(one.url).toBe("/v1/edit");
    expect(one.text).toContain('name="image"; filename="reference-1.png"');
  });

  it("sends a single reference as JSON under the name of one", async () => {
    const { image } = await bodyOf({ edits: "json" }, { references: [reference(PNG)] });
    expect(image).toEqual({ type: "image_url", url: `data:image/png;base64,${PNG.toString("base64")}` });
  });

  it("sends no more references than the entry takes", async () => {
    const server = await scriptedServer();
    expect(connect(server, { edits: "none" }).takes.maxReferences).toBe(0);
    for (const error of [
      await failure(server, { edits: "none" }, { references: [reference(PNG)] }),
      await failure(server, {}, { references: Array(17).fill(reference(PNG)) }),
    ]) {
      expect(error).toMatchObject({ code: "INVALID_ARGUMENT", trouble: null, retryable: false });
    }
    expect(server.seen).toHaveLength(0);
  });

  it("is probed with the list of models, which costs nothing", async () => {
    const server = await scriptedServer(json({ data: [] }));
    const adapter = connect(server);
    await adapter.probe(never);
    expect(server.seen[0]).toMatchObject({ method: "GET", url: "/v1/models" });
    expect(server.seen[0]?.headers.authorization).toBe(`Bearer ${KEY}`);
    server.reply = json({ error: { message: "no", code: "invalid_api_key" } }, 401);
    expect((await providerError(adapter.probe(never))).trouble).toBe("credential");
  });
});

describe("an answer in the form of OpenAI Images", () => {
  const generate = (server: ScriptedServer, changes: object = {}) =>
    connect(server, changes).generate(imageRequest(), never, () => {});

  it("has its images as Base64, as data URLs, or by address", async () => {
    const server = await scriptedServer();
    const large = Buffer.concat([PNG, Buffer.alloc(100_000, 7)]);
    const data = [
      { b64_json: PNG.toString("base64") },
      { b64_json: `data:image/jpeg;base64,${JPEG.toString("base64")}` },
      { b64_json: null, url: `data:image/png;base64,${PNG.toString("base64")}` },
      { url: `${server.url}/images/1` },
      { b64_json: `data:image/png;base64,${large.toString("base64")}` },
      { url: `data:image/png;base64,${large.toString("base64")}` },
    ];
    server.reply = (seen, ...rest) =>
      (seen.method === "GET" ? bytes(JPEG) : json({ model: "painter-3", data }))(seen, ...rest);
    const made = await generate(server);
    expect(made).toEqual({
      discard: expect.any(Function),
      images: [PNG, JPEG, PNG, JPEG, large, large],
      modelVersion: "painter-3",
      usage: null,
      notes: [],
      answer: { api: "openai", fields: { data: [{}, {}, {}, {}, {}, {}] } },
    });
    expect(server.seen[1]).toMatchObject({ method: "GET", url: "/images/1" });
    expect(server.seen[1]?.headers.authorization).toBe(`Bearer ${KEY}`);
  });

  it("has at most 16 images: more are an error that says so, and none of them is fetched", async () => {
    const server = await scriptedServer();
    const addresses = (count: number) => Array.from({ length: count }, (_, i) => ({ url: `/images/${i}` }));
    const answer = (count: number) => json({ data: addresses(count) });
    server.reply = byPath([
      ["GET", bytes(JPEG)],
      ["POST", answer(17)],
    ]);
    const error = await failure(server);
    expect(error).toMatchObject({ trouble: "ambiguous", upstreamStatus: 200 });
    expect(error.message).toContain("an answer with 17 images: at most 16 are taken");
    expect(server.seen).toHaveLength(1);
    server.reply = byPath([
      ["GET", bytes(JPEG)],
      ["POST", answer(16)],
    ]);
    expect((await generate(server)).images).toHaveLength(16);
  });

  it("has usage, with the cost in whole micro-dollars", async () => {
    const server = await scriptedServer();
    const usageOf = async (usage: unknown) => {
      server.reply = json({ ...base64(PNG), usage });
      return (await generate(server)).usage;
    };
    expect(await usageOf({ input_tokens: 12, output_tokens: 4160, total_tokens: 4172 })).toEqual({
      inputTokens: 12,
      outputTokens: 4160,
      costMicroUsd: null,
    });
    const cost = { prompt_tokens: 3, completion_tokens: 1290, cost: 0.0387003 };
    expect(await usageOf(cost)).toEqual({ inputTokens: 3, outputTokens: 1290, costMicroUsd: 38_700 });
    expect((await usageOf({ cost: 0.1 + 0.2 }))?.costMicroUsd).toBe(300_000);
    expect((await usageOf({ cost_in_usd_ticks: 600_000_000 }))?.costMicroUsd).toBe(60_000);
    expect((await usageOf({ cost: 1.005 }))?.costMicroUsd).toBe(1_005_000);
    for (const wrong of [{ cost: -1 }, { cost: "free" }, { cost: 1e300 }, { input_tokens: 1.5 }, 7, null]) {
      expect(await usageOf(wrong)).toBeNull();
    }
  });

  it("has the cost of its tokens where the vendor's rates are known, also without an image", async () => {
    const server = await scriptedServer();
    const costOf = async (usage: unknown, request: RequestChanges = {}, preset = "openai") => {
      server.reply = json({ ...base64(PNG), usage });
      const asked = imageRequest({ model: "gpt-image-2", ...request });
      return (await connect(server, { preset }).generate(asked, never, () => {})).usage?.costMicroUsd;
    };
    const plain = { input_tokens: 13, output_tokens: 4160 };
    const edit = { ...plain, input_tokens_details: { text_tokens: 10, image_tokens: 3 } };
    expect(await costOf(plain)).toBe(13 * 5 + 4160 * 30);
    expect(await costOf(edit, { references: [reference(PNG)] })).toBe(10 * 5 + 3 * 8 + 4160 * 30);
    expect(await costOf({ ...plain, cost: 0.2 })).toBe(200_000);
    // Not told apart, without a rate, and of another seller.
    expect(await costOf(plain, { references: [reference(PNG)] })).toBeNull();
    expect(await costOf({ ...plain, output_tokens_details: { text_tokens: 9 } })).toBeNull();
    expect(await costOf(plain, { model: "gpt-image-1" })).toBeNull();
    expect(await costOf(plain, {}, "localai")).toBeNull();
    server.reply = json({ data: [], usage: plain });
    const error = await failure(server, { preset: "openai" }, { model: "gpt-image-2" });
    expect(error).toMatchObject({ code: "EMPTY_IMAGE_OUTPUT", usage: { costMicroUsd: 124_865 } });
  });

  it("notes a prompt that was rewritten, and images that could not be fetched", async () => {
    const server = await scriptedServer();
    const data = [
      { b64_json: PNG.toString("base64"), revised_prompt: `a crimson fox\n${KEY}` },
      { url: "http://10.0.0.1/x.png", revised_prompt: "" },
    ];
    server.reply = json({ data });
    const provider = closing(asItemProvider(entryAt(server.url), connect(server), deps));
    const made = await provider.generate(imageRequest(), never);
    expect(made.images).toEqual([PNG]);
    expect(made.notes).toEqual([
      "the prompt was rewritten: a crimson fox | [API key]",
      "images that could not be fetched: 1",
    ]);
  });

  it.each<[string, object, string]>([
    ["an empty list", { data: [] }, "EMPTY_IMAGE_OUTPUT"],
    ["empty entries", { data: [{}, { b64_json: "" }, null] }, "EMPTY_IMAGE_OUTPUT"],
    [
      "a silent refusal",
      { data: [{ url: "http://x.example/blocked.png", respect_moderation: false }] },
      "SAFETY_BLOCKED",
    ],
    ["a silent refusal of all", { data: [], respect_moderation: false }, "SAFETY_BLOCKED"],
  ])("without an image is final: %s", async (_name, answer, code) => {
    const server = await scriptedServer(json(answer));
    expect(await failure(server)).toMatchObject({ code, trouble: null, retryable: false });
    expect(server.seen).toHaveLength(1);
  });

  it("is not taken from other JSON", async () => {
    for (const answer of [{}, { data: "x" }, [], "text", 4]) {
      const server = await scriptedServer(json(answer));
      expect((await failure(server)).trouble).toBe("ambiguous");
    }
  });

  it("is not judged by a prompt that it repeats, nor by an earlier turn", async () => {
    const message = "invalid: a billing account; API key not valid";
    const server = await scriptedServer(json({ error: { message } }, 400));
    const request = imageRequest({ earlier: "API key not valid", prompt: "a billing account" });
    const error = await providerError(connect(server).generate(request, never, () => {}));
    expect(error).toMatchObject({ code: "INVALID_ARGUMENT", trouble: null });
  });
});

describe("an answer that streams", () => {
  const event = (name: string, data: object) => `event: ${name}\r\ndata: ${JSON.stringify(data)}\r\n\r\n`;
  const image = (type: string, content: Buffer) =>
    event(type, { type, b64_json: content.toString("base64"), usage: { input_tokens: 3, output_tokens: 4 } });
  const streaming = (text: string) =>
    bytes(text, 200, { "content-type": "text/event-stream; charset=utf-8" });

  it("is read: the last picture counts, not those before it", async () => {
    const large = Buffer.concat([PNG, Buffer.alloc(300_000, 5)]);
    const text = `: hello\n\n${image("image_generation.partial_image", JPEG)}${image("image_generation.completed", large)}data: [DONE]\n\n`;
    const made = await connect(await scriptedServer(streaming(text))).generate(
      imageRequest(),
      never,
      () => {},
    );
    expect(made.images).toEqual([large]);
    expect(made.usage).toMatchObject({ inputTokens: 3, outputTokens: 4 });
    expect(made.partials).toEqual([JPEG]);
  });

  it("is asked for with the number of unfinished pictures that are wanted", async () => {
    const server = await scriptedServer(streaming(image("image_generation.completed", PNG)));
    const made = await connect(server).generate(imageRequest({ partialImages: 2 }), never, () => {});
    expect(JSON.parse(String(server.seen[0]?.body))).toMatchObject({ stream: true, partial_images: 2 });
    expect([made.images, made.partials]).toEqual([[PNG], undefined]);
  });

  it("is the error that it ends with, and cut off it is ambiguous", async () => {
    const text = event("error", { type: "error", error: { code: "moderation_blocked", message: "no" } });
    expect(await failure(await scriptedServer(streaming(text)))).toMatchObject({ code: "SAFETY_BLOCKED" });
    const cut = image("image_generation.completed", PNG).slice(0, -30);
    expect(await failure(await scriptedServer(streaming(cut)))).toMatchObject({ trouble: "ambiguous" });
  });
});

for (const type of ["openai", "openai-batch"] as const) {
  it(`the address of an upstream of ${type} may lack the version that other tools have there`, () => {
    const at = (baseUrl: string) => entryOf(type, { name: "painter", baseUrl }).baseUrl;
    expect(
      ["https://a.example", "https://a.example/", "https://a.example/openai", "https://a.example/v1"].map(at),
    ).toEqual([
      "https://a.example/v1",
      "https://a.example/v1",
      "https://a.example/openai",
      "https://a.example/v1",
    ]);
  });
}

for (const type of ["native", "native-batch"] as const) {
  it(`the address of an upstream of ${type} may end with the version that other tools have there`, () => {
    const at = (baseUrl: string) => entryOf(type, { name: "painter", baseUrl }).baseUrl;
    expect(
      ["https://a.example/v1beta", "https://a.example/x/v1beta/", "https://a.example/x"].map(at),
    ).toEqual(["https://a.example", "https://a.example/x", "https://a.example/x"]);
  });
}
