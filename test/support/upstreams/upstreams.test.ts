import { createHash } from "node:crypto";
import { describe, expect, it, onTestFinished } from "vitest";
import type { FakeUpstream } from "./fake-upstream.ts";
import * as hostile from "./hostile.ts";
import { imageOf, lookAt, showsPrompt } from "./images.ts";
import { NATIVE_KEY, nativeBlocks, nativeErrors, startNative } from "./native.ts";
import { OPENAI_KEY, startOpenai } from "./openai.ts";
import { DIALECTS } from "./openai-dialects.ts";
import { openaiErrors, silentModeration } from "./openai-errors.ts";
import { startSdapi } from "./sdapi.ts";

const sha256 = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");
const NATIVE_PATH = "/v1beta/models/gemini-3.1-flash-image:generateContent";

// biome-ignore lint/suspicious/noExplicitAny: the shapes of other services are read loosely here.
type Loose = any;

async function started<T extends FakeUpstream>(upstream: Promise<T>): Promise<T> {
  const fake = await upstream;
  onTestFinished(() => fake.close());
  return fake;
}

async function post(url: string, body: unknown, headers: Record<string, string> = {}, signal?: AbortSignal) {
  const isForm = body instanceof FormData;
  const answer = await fetch(url, {
    method: "POST",
    headers: isForm ? headers : { "content-type": "application/json", ...headers },
    body: isForm ? body : JSON.stringify(body),
    redirect: "manual",
    ...(signal ? { signal } : {}),
  });
  const text = await answer.text();
  const json: Loose = text.startsWith("{") ? JSON.parse(text) : text;
  return { status: answer.status, headers: answer.headers, json };
}

const native = (prompt: string, more: object = {}, imageConfig: object = {}) => ({
  contents: [{ role: "user", parts: [{ text: prompt }] }],
  generationConfig: { responseModalities: ["TEXT", "IMAGE"], imageConfig },
  ...more,
});
const askNative = (url: string, body: unknown, key = NATIVE_KEY) =>
  post(url + NATIVE_PATH, body, key ? { "x-goog-api-key": key } : {});
const askOpenai = (url: string, body: unknown, key = OPENAI_KEY) =>
  post(url, body, { authorization: `Bearer ${key}` });

describe("the fake of the native service", () => {
  it("[FAKE-1] makes an image of the asked size in the prompt's colour, and bills it", async () => {
    const fake = await started(startNative());
    const { status, json } = await askNative(
      fake.url,
      native("a hill", {}, { aspectRatio: "16:9", imageSize: "2K" }),
    );
    expect(status).toBe(200);
    const parts = json.candidates[0].content.parts;
    const image = Buffer.from(parts[1].inlineData.data, "base64");
    expect(await lookAt(image)).toEqual({ type: "png", width: 2752, height: 1536 });
    expect([await showsPrompt(image, "a hill"), await showsPrompt(image, "a lake")]).toEqual([true, false]);
    expect([...fake.bill]).toEqual([["a hill", [sha256(image)]]]);
    const { promptTokenCount: prompt, candidatesTokenCount: made, ...usage } = json.usageMetadata;
    expect(usage.totalTokenCount).toBe(prompt + made + usage.thoughtsTokenCount);
    expect(fake.requests).toMatchObject([
      { kind: "images", method: "POST", path: NATIVE_PATH, prompt: "a hill" },
    ]);
  });

  it("[FAKE-2] is as strict as the service about keys, fields, values and models", async () => {
    const fake = await started(startNative());
    expect(await askNative(fake.url, native("a"), "")).toMatchObject({ status: 403 });
    const wrong = await askNative(fake.url, native("a"), "wrong");
    expect([wrong.status, wrong.json.error.details[0].reason]).toEqual([400, "API_KEY_INVALID"]);
    const unknown = await askNative(fake.url, native("a", {}, { outputMimeType: "image/png" }));
    expect([unknown.status, unknown.json.error.details[0].fieldViolations[0]]).toEqual([
      400,
      {
        field: "generation_config.image_config",
        description: `Invalid JSON payload received. Unknown name "outputMimeType" at 'generation_config.image_config': Cannot find field.`,
      },
    ]);
    for (const config of [{ imageSize: "1k" }, { aspectRatio: "7:5" }, { image_size: "8K" }])
      expect((await askNative(fake.url, native("a", {}, config))).json.error.status).toBe("INVALID_ARGUMENT");
    const other = await post(
      `${fake.url}/v1beta/models/other:generateContent?key=${NATIVE_KEY}`,
      native("a"),
    );
    expect([other.status, other.json.error.message]).toEqual([
      404,
      expect.stringMatching(/^models\/other is not/),
    ]);
    expect(fake.billed()).toBe(0);
    const list = await fetch(`${fake.url}/v1/models`, { headers: { "x-goog-api-key": NATIVE_KEY } });
    expect(((await list.json()) as Loose).models).toHaveLength(3);
  });

  it("[FAKE-1] answers as it is told: thoughts, several images, other bytes than the label, refusals", async () => {
    const fake = await started(startNative());
    fake.setBehaviour(hostile.answering({ thoughts: 1, images: 2, type: "jpeg", label: "image/png" }));
    const { json } = await askNative(fake.url, native("a"));
    const images = json.candidates[0].content.parts.filter((part: Loose) => part.inlineData);
    expect(images.map((part: Loose) => part.thought ?? false)).toEqual([true, false, false]);
    const bytes = Buffer.from(images[1].inlineData.data, "base64");
    expect([images[1].inlineData.mimeType, (await lookAt(bytes))?.type]).toEqual(["image/png", "jpeg"]);
    expect(fake.billed()).toBe(2);
    fake.setBehaviour(hostile.answers(nativeBlocks.prompt("SAFETY")));
    expect((await askNative(fake.url, native("a"))).json.promptFeedback).toEqual({ blockReason: "SAFETY" });
    fake.setBehaviour(hostile.answers(nativeErrors.perDay()));
    const limited = await askNative(fake.url, native("a"));
    expect([limited.status, limited.json.error.details[1].retryDelay]).toEqual([429, "41s"]);
  });
});

describe("the fakes of OpenAI Images", () => {
  it("[FAKE-1] makes images from JSON and from a form", async () => {
    const fake = await started(startOpenai());
    const body = { model: "gpt-image-2", prompt: "a hill", n: 2, size: "1536x1024", output_format: "webp" };
    const { json } = await askOpenai(`${fake.url}/v1/images/generations`, body);
    const image = Buffer.from(json.data[1].b64_json, "base64");
    expect(await lookAt(image)).toEqual({ type: "webp", width: 1536, height: 1024 });
    expect([fake.billed(), json.usage.output_tokens]).toEqual([2, 8320]);

    const form = new FormData();
    for (const [name, value] of Object.entries({ model: "gpt-image-2", prompt: "a lake" }))
      form.set(name, value);
    const file = new Blob([new Uint8Array(await imageOf("x", { width: 8, height: 8 }))], {
      type: "image/png",
    });
    form.append("image[]", file, "a.png");
    form.append("image[]", file, "b.png");
    expect((await askOpenai(`${fake.url}/v1/images/edits`, form)).status).toBe(200);
    expect(fake.requests.at(-1)?.body).toMatchObject({ files: [{ name: "image[]" }, { name: "image[]" }] });
    form.append("image", file, "c.png");
    form.append("image", file, "d.png");
    expect((await askOpenai(`${fake.url}/v1/images/edits`, form)).status).toBe(400);
  });

  it("[FAKE-2] is as strict as the service about keys, names, values and models", async () => {
    const fake = await started(startOpenai());
    const url = `${fake.url}/v1/images/generations`;
    const good = { model: "gpt-image-2", prompt: "a" };
    expect((await askOpenai(url, good, "sk-wrong")).json.error.code).toBe("invalid_api_key");
    expect((await askOpenai(url, { ...good, model: "dall-e-2" })).json.error.code).toBe("model_not_found");
    for (const wrong of [{ response_format: "b64_json" }, { seed: 1 }, { size: "100x100" }, { n: 11 }])
      expect((await askOpenai(url, { ...good, ...wrong })).json.error.param).toBe(Object.keys(wrong)[0]);
    expect((await askOpenai(`${fake.url}/v1/images/edits`, good)).status).toBe(400);
    expect(fake.billed()).toBe(0);
  });

  it("[FAKE-1] speaks as OpenRouter, Together, xAI and a local server do", async () => {
    const reference = `data:image/png;base64,${(await imageOf("r", { width: 8, height: 8 })).toString("base64")}`;
    const router = await started(startOpenai({ dialect: DIALECTS.openrouter }));
    const references = [{ type: "image_url", image_url: { url: reference } }];
    const routed = {
      model: DIALECTS.openrouter.model,
      prompt: "a",
      aspect_ratio: "16:9",
      input_references: references,
    };
    expect((await askOpenai(`${router.url}/api/v1/images`, routed)).json.usage.cost).toBe(0.04);
    router.setBehaviour(hostile.answers(openaiErrors.inside200(502, "Provider returned error")));
    expect(await askOpenai(`${router.url}/api/v1/images`, routed)).toMatchObject({
      ...{ status: 200, json: { error: { code: 502 } } },
    });

    const together = await started(startOpenai({ dialect: DIALECTS.together }));
    const wide = { model: DIALECTS.together.model, prompt: "a", width: 832, height: 1248 };
    const linked = (await askOpenai(`${together.url}/v1/images/generations`, wide)).json.data[0].url;
    const file = Buffer.from(await (await fetch(linked)).arrayBuffer());
    expect(await lookAt(file)).toEqual({ type: "png", width: 832, height: 1248 });
    expect(together.requests.at(-1)).toMatchObject({ kind: "files", method: "GET" });

    const xai = await started(startOpenai({ dialect: DIALECTS.xai }));
    const edit = {
      model: DIALECTS.xai.model,
      prompt: "a",
      image: { url: reference },
      response_format: "b64_json",
    };
    expect((await askOpenai(`${xai.url}/v1/images/edits`, edit)).json.data[0].b64_json).toMatch(/^iVBOR/);
    xai.setBehaviour(hostile.answers(silentModeration.flagged()));
    expect((await askOpenai(`${xai.url}/v1/images/edits`, edit)).json.data[0].b64_json).toBeUndefined();

    const local = await started(startOpenai({ dialect: DIALECTS.local }));
    const plain = await askOpenai(`${local.url}/v1/images/generations`, { prompt: "a" });
    expect(plain.json.data[0].url).toMatch(/\/files\/0$/);
  });
});

describe("the fake of a server on the own graphics card", () => {
  it("[FAKE-1] makes one image at a time, with a seed, behind a login", async () => {
    const fake = await started(startSdapi({ login: "me:secret" }));
    const login = { authorization: `Basic ${Buffer.from("me:secret").toString("base64")}` };
    const url = `${fake.url}/sdapi/v1`;
    expect((await post(`${url}/txt2img`, { prompt: "a" })).status).toBe(401);
    const wish = { prompt: "a", width: 515, height: 256, seed: 7 };
    const { json } = await post(`${url}/txt2img`, wish, login);
    expect(JSON.parse(json.info)).toMatchObject({ seed: 7, all_seeds: [7], width: 512 });
    const image = Buffer.from(json.images[0], "base64");
    expect(await lookAt(image)).toEqual({ type: "png", width: 512, height: 256 });
    const edit = { prompt: "b", init_images: [`data:image/png;base64,${json.images[0]}`] };
    expect((await post(`${url}/img2img`, edit, login)).status).toBe(200);
    expect((await post(`${url}/txt2img`, { ...wish, width: 51.5 }, login)).status).toBe(422);
    const options = await fetch(`${url}/options`, { headers: login });
    expect(await options.json()).toHaveProperty("sd_model_checkpoint");
  });
});

describe("a hostile upstream", () => {
  const asked = async (behaviour: Parameters<FakeUpstream["setBehaviour"]>[0]) => {
    const fake = await started(startNative());
    fake.setBehaviour(behaviour);
    const ask = (signal?: AbortSignal) =>
      post(fake.url + NATIVE_PATH, native("a"), { "x-goog-api-key": NATIVE_KEY }, signal);
    return { fake, ask };
  };

  it.each([
    ["resets before it reads", hostile.resetBefore, 0],
    ["resets after it read", hostile.resetAfter({ made: false }), 0],
    ["resets after it worked", hostile.resetAfter({ made: true }), 1],
    ["resets in the middle of the answer", hostile.resetMidway, 1],
    ["promises more than it sends", hostile.liesAboutLength(9), 1],
  ])("[FAKE-3] %s", async (_, behaviour, billed) => {
    const { fake, ask } = await asked(behaviour);
    await expect(ask()).rejects.toThrow();
    expect([fake.requests.length, fake.billed()]).toEqual([1, billed]);
  });

  it.each([
    ["never answers", hostile.hang],
    ["answers without an end", hostile.endless],
    ["answers a byte a second", hostile.slow()],
    ["answers late", hostile.late(60_000)],
  ])("[FAKE-3] %s", async (_, behaviour) => {
    const { fake, ask } = await asked(behaviour);
    const caller = new AbortController();
    const answer = ask(caller.signal);
    await expect.poll(() => fake.requests.length).toBe(1);
    caller.abort();
    await expect(answer).rejects.toThrow(/abort/);
    await expect.poll(() => fake.requests[0]?.isAbandoned).toBe(true);
  });

  it("[FAKE-3] answers with half a document, a page, a redirect, wrong bytes, and the caller's key", async () => {
    const { fake, ask } = await asked(hostile.halfJson);
    await expect(ask()).rejects.toThrow(SyntaxError);
    fake.setBehaviour(hostile.html(403));
    expect((await ask()).json).toMatch(/^<!doctype html>/);
    fake.setBehaviour(hostile.redirect("http://10.0.0.1/"));
    expect((await ask()).headers.get("location")).toBe("http://10.0.0.1/");
    fake.setBehaviour(hostile.answering({ bytes: Buffer.from("no image") }));
    const { data } = (await ask()).json.candidates[0].content.parts[1].inlineData;
    expect(Buffer.from(data, "base64").toString()).toBe("no image");
    fake.setBehaviour(hostile.echo(401));
    expect((await ask()).json.error.message).toContain(NATIVE_KEY);
  });

  it("[FAKE-3] is so for some requests, for each prompt's first, or for a while", async () => {
    const { fake, ask } = await asked(hostile.first(2, hostile.status(503)));
    expect([(await ask()).status, (await ask()).status, (await ask()).status]).toEqual([503, 503, 200]);
    fake.setBehaviour(hostile.firstOfEach(1, hostile.status(500)));
    expect([(await ask()).status, (await ask()).status]).toEqual([500, 200]);
    fake.setBehaviour(hostile.forPrompt(/b/, hostile.status(500)));
    expect((await ask()).status).toBe(200);
    fake.setBehaviour(hostile.outage(40, hostile.status(503)));
    expect((await ask()).status).toBe(503);
    await expect.poll(async () => (await ask()).status).toBe(200);
    await fake.refuse();
    await expect(ask()).rejects.toThrow();
    await fake.listenAgain();
    expect((await ask()).status).toBe(200);
  });
});
