import { describe, expect, it } from "vitest";
import { createNativeAdapter } from "../../../src/providers/native/provider.ts";
import { closing, entryOf } from "../../support/upstream-adapter.ts";
import {
  depsWith,
  imageRequest,
  JPEG,
  json,
  never,
  PNG,
  providerError,
  reference,
  scriptedServer,
} from "../upstream/scripted-server.ts";

const KEY = "canary-native-key-0123456789";
const deps = depsWith({ PAINTER_KEY: KEY });

const entryAt = (baseUrl: string, changes: object = {}) =>
  entryOf("native", { name: "painter", baseUrl, apiKeyEnv: "PAINTER_KEY", ...changes });

const connect = (baseUrl: string, changes: object = {}) =>
  closing(createNativeAdapter(entryAt(baseUrl, changes), deps));

const image = (bytes: Buffer, more: object = {}) => ({
  inlineData: { mimeType: "image/png", data: bytes.toString("base64") },
  ...more,
});
const content = (...parts: object[]) => ({
  candidates: [{ content: { role: "model", parts }, finishReason: "STOP", index: 0 }],
  modelVersion: "image-model-002",
});

describe("the native protocol", () => {
  it("is asked for an image with ratio, size, seed and references", async () => {
    const server = await scriptedServer(json(content(image(PNG))));
    const adapter = connect(`${server.url}/`);
    let sent = 0;
    const references = [reference(PNG), reference(JPEG, "image/jpeg")];
    const request = imageRequest({ references, earlier: "a fox\nat night", options: { seed: 4711 } });
    await adapter.generate(request, never, () => sent++);
    const [seen] = server.seen;
    expect(seen).toMatchObject({ method: "POST", url: "/v1beta/models/image-model:generateContent" });
    expect(seen?.headers).toMatchObject({ "x-vendorx-api-key": KEY, "content-type": "application/json" });
    expect(JSON.parse(seen?.text ?? "")).toEqual({
      contents: [
        { role: "user", parts: [{ text: "a fox\nat night" }] },
        {
          role: "user",
          parts: [
            { text: "a red fox" },
            image(PNG),
            { inlineData: { mimeType: "image/jpeg", data: JPEG.toString("base64") } },
          ],
        },
      ],
      generationConfig: {
        responseModalities: ["TEXT", "IMAGE"],
        imageConfig: { aspectRatio: "3:2", imageSize: "2K" },
        seed: 4711,
      },
    });
    expect(sent).toBe(1);
  });

  it("has its version, key header and model path from the entry", async () => {
    const server = await scriptedServer(json(content(image(PNG))));
    const adapter = connect(server.url, { apiVersion: "v1", keyHeader: "x-goog-api-key" });
    expect(adapter.address).toBe(`${server.url}/v1`);
    await adapter.generate(
      imageRequest({ model: "gemini-2.5-flash-image", options: { size: "1K" } }),
      never,
      () => {},
    );
    const edit = { options: { keepsRatio: true }, references: [reference(PNG)] };
    await adapter.generate(imageRequest({ model: "tunedModels/my fox?", ...edit }), never, () => {});
    await connect(server.url, { apiKeyEnv: null }).generate(imageRequest({ model: ".." }), never, () => {});
    expect(server.seen.map(({ url }) => url)).toEqual([
      "/v1/models/gemini-2.5-flash-image:generateContent",
      "/v1/tunedModels/my%20fox%3F:generateContent",
      "/v1beta/models/..:generateContent",
    ]);
    expect(server.seen[0]?.headers["x-goog-api-key"]).toBe(KEY);
    expect(server.seen[2]?.headers["x-vendorx-api-key"]).toBeUndefined();
    // This model makes one size, and has no field for it.
    expect(JSON.parse(server.seen[0]?.text ?? "").generationConfig.imageConfig).toEqual({
      aspectRatio: "3:2",
    });
    // Without one that was asked for, the vendor keeps the ratio of the first reference.
    expect(JSON.parse(server.seen[1]?.text ?? "").generationConfig.imageConfig).toEqual({ imageSize: "2K" });
  });

  it.each([
    ["a vendor's model that takes one", "gemini-3-pro-image", "google", null, 4711],
    ["a vendor's model that takes none", "gemini-nano-banana-2.1", "google", null, null],
    // Another imgbatch, whose models are its own matter.
    ["a server that is no vendor's", "gemini-3-pro-image", null, null, null],
    ["a model that is not known", "gemini-9-image", "google", null, null],
    ["a model that is not known, where one was asked for", "gemini-9-image", "google", 7, 7],
  ])("[OPT-6] sends a seed to %s, or leaves it out", async (_, model, preset, seed, expected) => {
    const server = await scriptedServer(json(content(image(PNG))));
    const options = { quality: "high", seed };
    const request = imageRequest({ model, options, ...(seed !== null && { seed }) });
    const made = await connect(server.url, { preset }).generate(request, never, () => {});
    expect(made.seed).toBe(expected);
    expect(JSON.parse(server.seen[0]?.text ?? "").generationConfig.seed ?? null).toBe(expected);
  });

  it("cannot be asked for a type", async () => {
    const server = await scriptedServer();
    expect(connect(server.url).takes).toEqual({
      maxReferences: 14,
      ratios: "any",
      tiers: "any",
      options: ["seed", "systemInstruction", "tools", "cachedContent"],
      api: "native",
    });
  });

  it("has the cost of its tokens at the vendor's rates, thoughts and refusals included", async () => {
    const server = await scriptedServer();
    const usage = {
      promptTokenCount: 7,
      promptTokensDetails: [{ modality: "TEXT", tokenCount: 7 }],
      candidatesTokenCount: 1125,
      candidatesTokensDetails: [
        { modality: "IMAGE", tokenCount: 1120 },
        { modality: "TEXT", tokenCount: 5 },
      ],
      thoughtsTokenCount: 80,
    };
    const google = connect(server.url, { preset: "google" });
    const made = async (usageMetadata: object) => {
      server.reply = json({ ...content(image(PNG)), usageMetadata });
      const asked = imageRequest({ model: "gemini-nano-banana-2.1" });
      return (await google.generate(asked, never, () => {})).usage?.costMicroUsd;
    };
    // 10.5 + 33600 + 637.5
    expect(await made(usage)).toBe(34_248);
    const withImage = [{ modality: "IMAGE", tokenCount: 7 }];
    expect(await made({ ...usage, promptTokensDetails: withImage })).toBeNull();
    server.reply = json({
      promptFeedback: { blockReason: "SAFETY" },
      usageMetadata: { promptTokenCount: 8, thoughtsTokenCount: 2 },
    });
    const asked = imageRequest({ model: "gemini-nano-banana-2.1" });
    const error = await providerError(google.generate(asked, never, () => {}));
    expect(error).toMatchObject({ code: "SAFETY_BLOCKED", usage: { costMicroUsd: 27 } });
  });

  it("keeps every image but interim ones, with version and tokens", async () => {
    const server = await scriptedServer(
      json({
        ...content(
          image(JPEG, { thought: true }),
          { text: "here" },
          image(PNG, { thoughtSignature: "s" }),
          { thoughtSignature: "x" },
          image(JPEG),
        ),
        usageMetadata: { promptTokenCount: 7, candidatesTokenCount: 1120, thoughtsTokenCount: 80 },
      }),
    );
    const made = await connect(server.url).generate(imageRequest(), never, () => {});
    expect(made).toEqual({
      discard: expect.any(Function),
      images: [PNG, JPEG],
      modelVersion: "image-model-002",
      seed: null,
      usage: { inputTokens: 7, outputTokens: 1200, costMicroUsd: null },
      answer: {
        api: "native",
        fields: {
          candidates: [
            {
              content: {
                role: "model",
                parts: [
                  { text: "here" },
                  { image: 0, thoughtSignature: "s" },
                  { thoughtSignature: "x" },
                  { image: 1 },
                ],
              },
              finishReason: "STOP",
              index: 0,
            },
          ],
          usageMetadata: { promptTokenCount: 7, candidatesTokenCount: 1120, thoughtsTokenCount: 80 },
        },
      },
    });
    server.reply = json({
      candidates: [{ content: { parts: [{ inline_data: { data: PNG.toString("base64") } }] } }],
    });
    const bare = await connect(server.url).generate(imageRequest(), never, () => {});
    expect(bare).toMatchObject({ images: [PNG], modelVersion: null, seed: null, usage: null });
  });

  it.each<[string, object, string, string]>([
    [
      "a recital",
      { finishReason: "RECITATION" },
      "SAFETY_BLOCKED",
      "painter refused to show what it made (RECITATION).",
    ],
    ["a text", content({ text: "No." }).candidates[0] ?? {}, "EMPTY_IMAGE_OUTPUT", "no image (STOP): No."],
    [
      "thoughts",
      content(image(PNG, { thought: true })).candidates[0] ?? {},
      "EMPTY_IMAGE_OUTPUT",
      "no image (STOP).",
    ],
    [
      "nonsense",
      { content: { parts: [{ inlineData: 5 }] } },
      "EMPTY_IMAGE_OUTPUT",
      "no image (no candidate).",
    ],
  ])("tells why there is no image: %s", async (_name, candidate, code, message) => {
    const server = await scriptedServer(json({ candidates: [candidate], modelVersion: "v9" }));
    const error = await providerError(connect(server.url).generate(imageRequest(), never, () => {}));
    expect(error).toMatchObject({ code, trouble: null, retryable: false, modelVersion: "v9" });
    expect(error.message).toContain(message);
  });

  it("does not take other JSON for an answer", async () => {
    const server = await scriptedServer();
    for (const answer of [{}, { login: true }, [], "text", 4, null]) {
      server.reply = json(answer);
      const error = await providerError(connect(server.url).generate(imageRequest(), never, () => {}));
      expect(error.trouble).toBe("ambiguous");
    }
  });

  it("is not judged by a prompt that it repeats, nor by an earlier turn", async () => {
    const message = "invalid: a billing account; API key not valid";
    const server = await scriptedServer(json({ error: { code: 400, message } }, 400));
    const request = imageRequest({ earlier: "API key not valid", prompt: "a billing account" });
    const error = await providerError(connect(server.url).generate(request, never, () => {}));
    expect(error).toMatchObject({ code: "INVALID_ARGUMENT", trouble: null });
  });

  it("is probed with a list of models, which costs nothing", async () => {
    const server = await scriptedServer(json({ models: [] }));
    const adapter = connect(server.url);
    await adapter.probe(never);
    expect(server.seen[0]).toMatchObject({ method: "GET", url: "/v1beta/models?pageSize=1" });
    expect(server.seen[0]?.headers["x-vendorx-api-key"]).toBe(KEY);
    server.reply = json({ error: { code: 401, message: "no", status: "UNAUTHENTICATED" } }, 401);
    expect((await providerError(adapter.probe(never))).trouble).toBe("credential");
  });
});
