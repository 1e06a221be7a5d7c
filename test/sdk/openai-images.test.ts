import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readImageHeader } from "../../src/contract/image-formats.ts";
import type { OpenaiBody } from "../../src/contract/openai-api.ts";
import { findPreset } from "../../src/providers/catalogue/catalogue.ts";
import { tinyJpeg, tinyPng } from "../support/fake-provider.ts";
import { tempDir } from "../support/temp-dir.ts";
import { areInstalled, type Sdk, startSdk } from "./sdk.ts";
import { MODEL, type SdkService, startSdkService } from "./service.ts";

function shapeOf(base64: string | undefined) {
  const header = readImageHeader(Buffer.from(base64 ?? "", "base64"));
  return [header?.mimeType, header?.widthPx, header?.heightPx];
}

for (const library of ["openai", "openai-7"] as const) {
  describe.skipIf(!areInstalled)(`OpenAI's own library, ${library}`, () => {
    let service: SdkService;
    let sdk: Sdk;
    beforeAll(async () => {
      service = await startSdkService();
      // It asks again after some errors, as it does by default.
      sdk = startSdk(library, { apiKey: service.apiKey, baseURL: `${service.url}/v1` });
    });
    afterAll(async () => {
      await sdk?.close();
      await service?.close();
    });

    it("[SDK-10] makes images with the names that it knows, and reads usage and size", async () => {
      for (const model of ["gpt-image-1", "gpt-image-2", "chatgpt-image-latest", MODEL]) {
        const wanted = { model, prompt: "a red fox", n: 2, size: "1024x1536", output_format: "webp" };
        const { value } = await sdk.call<OpenaiBody<"Images">>("images.generate", wanted);
        expect(value).toMatchObject({ size: "1024x1536", output_format: "webp" });
        const { usage } = value;
        expect(usage?.total_tokens).toBe((usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0));
        expect(value.data.map(({ b64_json }) => shapeOf(b64_json))).toEqual([
          ["image/webp", 1024, 1536],
          ["image/webp", 1024, 1536],
        ]);
      }
    });

    it("[SDK-10] [OPT-8] asks for quality and background, and reads what was used", async () => {
      const wanted = { prompt: "a red fox", quality: "hd", background: "transparent", output_format: "webp" };
      const { value } = await sdk.call<OpenaiBody<"Images">>("images.generate", wanted);
      expect(value).toMatchObject({ quality: "high", background: "transparent", output_format: "webp" });
      const bytes = Buffer.from(value.data[0]?.b64_json ?? "", "base64");
      expect((await sharp(bytes).stats()).isOpaque).toBe(false);
    });

    it("[SDK-10] edits an image and several, sent as streams without a length", async () => {
      const folder = await tempDir();
      const [png, jpeg] = [join(folder, "a.png"), join(folder, "b.jpg")];
      await writeFile(png, await tinyPng());
      await writeFile(jpeg, await tinyJpeg());
      for (const image of [{ stream: png }, [{ stream: png }, { stream: jpeg }]]) {
        const wanted = { model: "gpt-image-1", prompt: "in autumn", image, input_fidelity: "high" };
        const { value, error } = await sdk.call<OpenaiBody<"Images">>("images.edit", wanted);
        expect(error).toBeUndefined();
        expect(shapeOf(value.data[0]?.b64_json)).toEqual(["image/png", 1024, 1024]);
      }
      const masked = { prompt: "x", image: { stream: png }, mask: { stream: png } };
      expect((await sdk.call("images.edit", masked)).error).toMatchObject({
        status: 400,
        message: expect.stringContaining("mask"),
      });
    });

    it("[SDK-10] reads a stream of images", async () => {
      const wanted = { prompt: "a red fox", stream: true, partial_images: 2 };
      const { value } = await sdk.call<OpenaiBody<"ImageEvent">[]>("images.generate", wanted);
      expect(value).toMatchObject([
        { type: "image_generation.partial_image", partial_image_index: 0, quality: "medium" },
        { type: "image_generation.partial_image", partial_image_index: 1, background: "opaque" },
        { type: "image_generation.completed", usage: { output_tokens: 1120 } },
      ]);
      for (const { b64_json } of value) expect(shapeOf(b64_json)).toEqual(["image/png", 1024, 1024]);
    });

    it("[SDK-10] gets an image by URL", async () => {
      const wanted = { prompt: "a red fox", response_format: "url" };
      const { value } = await sdk.call<OpenaiBody<"Images">>("images.generate", wanted);
      const answer = await fetch(value.data[0]?.url ?? "");
      expect(answer.headers.get("content-type")).toBe("image/png");
      expect(shapeOf(Buffer.from(await answer.arrayBuffer()).toString("base64"))[1]).toBe(1024);
    });

    it("[SDK-10] gets typed errors, and does not ask again after a refusal", async () => {
      const refused = (await sdk.call("images.generate", { prompt: "[[refuse]] a fox" })).error;
      expect(refused?.classes).toContain("BadRequestError");
      const type = "image_generation_user_error";
      expect(refused).toMatchObject({ status: 400, code: "moderation_blocked", type });
      expect(refused?.requestID).toMatch(/^req_/);
      const unknown = (await sdk.call("images.generate", { prompt: "x", model: "sora" })).error;
      expect(unknown).toMatchObject({ status: 404, code: "model_not_found" });
      const nothing = (await sdk.call("images.generate", { prompt: "[[empty]] a fox" })).error;
      expect(nothing).toMatchObject({ status: 400, code: "no_image" });
    });

    it("lists the models and gets one, with the fields of its own kind", async () => {
      const { value } = await sdk.call<{ id: string }[]>("models.list");
      const ids = (findPreset("google")?.models ?? []).map(({ id }) => id);
      expect(value.map((model) => model.id)).toEqual([...ids, "chatgpt-image-latest"]);
      expect((await sdk.call("models.retrieve", MODEL)).value).toMatchObject({
        id: MODEL,
        object: "model",
        created: expect.any(Number),
        owned_by: expect.any(String),
      });
    });

    it("gets typed errors with a code and the request id", async () => {
      const missing = (await sdk.call("models.retrieve", "none")).error;
      expect(missing?.classes).toContain("NotFoundError");
      expect(missing).toMatchObject({ status: 404, requestID: expect.stringMatching(/^req_/) });
      expect(missing?.code).toEqual(expect.any(String));

      const stranger = startSdk(library, { apiKey: "wrong", baseURL: `${service.url}/v1` });
      const refused = (await stranger.call("models.list")).error;
      expect(refused?.classes).toContain("AuthenticationError");
      expect(refused).toMatchObject({ status: 401, requestID: expect.stringMatching(/^req_/) });
      await stranger.close();
    });
  });
}

interface Made {
  base64: string;
  mediaType: string;
}

describe.skipIf(!areInstalled)("Vercel's AI SDK", () => {
  let service: SdkService;
  let photo: string;
  beforeAll(async () => {
    service = await startSdkService();
    photo = (await tinyPng()).toString("base64");
  });
  afterAll(() => service?.close());

  async function withSdk(
    library: Parameters<typeof startSdk>[0],
    path: string,
    work: (sdk: Sdk) => Promise<void>,
  ): Promise<void> {
    const options = { name: "imgbatch", apiKey: service.apiKey, baseURL: service.url + path };
    const sdk = startSdk(library, options);
    try {
      await work(sdk);
    } finally {
      await sdk.close();
    }
  }

  for (const library of ["@ai-sdk/openai", "@ai-sdk/openai-compatible"] as const) {
    it(`[SDK-11] makes and edits images with ${library}`, () =>
      withSdk(library, "/v1", async (sdk) => {
        for (const model of ["gpt-image-1", "dall-e-3"]) {
          const wanted = { model, prompt: "a red fox", n: 2, size: "1536x1024" };
          const { value, error } = await sdk.call<Made[]>("generateImage", wanted);
          expect(error).toBeUndefined();
          expect(value.map(({ base64 }) => shapeOf(base64))).toEqual([
            ["image/png", 1536, 1024],
            ["image/png", 1536, 1024],
          ]);
        }
        const edit = { model: "gpt-image-1", prompt: { text: "in autumn", images: [photo] } };
        const { value, error } = await sdk.call<Made[]>("generateImage", edit);
        expect(error).toBeUndefined();
        expect(shapeOf(value[0]?.base64)).toEqual(["image/png", 1024, 1024]);
        const refused = (await sdk.call("generateImage", { model: "dall-e-3", prompt: "[[refuse]] x" }))
          .error;
        expect(refused).toMatchObject({ status: 400, message: expect.stringContaining("refused") });
      }));
  }

  it("[SDK-11] makes and edits images with @ai-sdk/google", () =>
    withSdk("@ai-sdk/google", "/v1beta", async (sdk) => {
      const wanted = { model: MODEL, prompt: "a red fox", aspectRatio: "16:9" };
      const { value, error } = await sdk.call<Made[]>("generateImage", wanted);
      expect(error).toBeUndefined();
      expect(shapeOf(value[0]?.base64)).toEqual(["image/png", 1376, 768]);
      const edit = await sdk.call<Made[]>("generateImage", {
        model: MODEL,
        prompt: { text: "x", images: [photo] },
      });
      expect(shapeOf(edit.value?.[0]?.base64)).toEqual(["image/png", 1024, 1024]);
    }));
});
