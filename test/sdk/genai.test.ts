import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readImageHeader } from "../../src/contract/image-formats.ts";
import { findPreset } from "../../src/providers/catalogue/catalogue.ts";
import { png } from "../support/fake-service.ts";
import { areInstalled, type Sdk, startSdk } from "./sdk.ts";
import { MODEL, type SdkService, startSdkService } from "./service.ts";

interface Part {
  text?: string;
  inlineData?: { mimeType: string; data: string };
}
interface Answer {
  candidates?: { content?: { role: string; parts: Part[] }; finishReason?: string; index?: number }[];
  promptFeedback?: { blockReason?: string };
  usageMetadata?: { promptTokenCount: number; candidatesTokenCount: number; totalTokenCount: number };
  modelVersion?: string;
  sdkHttpResponse: { headers: Record<string, string> };
}

const config = {
  responseModalities: ["TEXT", "IMAGE"],
  imageConfig: { aspectRatio: "16:9", imageSize: "1K" },
};
const FOX = { model: MODEL, contents: "a red fox", config };

const imagesOf = (answers: readonly Answer[]) =>
  answers
    .flatMap((answer) => answer.candidates ?? [])
    .flatMap((candidate) => candidate.content?.parts ?? [])
    .flatMap((part) => (part.inlineData === undefined ? [] : [part.inlineData]));

function sizeOf(image: { mimeType: string; data: string } | undefined) {
  const header = readImageHeader(Buffer.from(image?.data ?? "", "base64"));
  expect(header?.mimeType).toBe(image?.mimeType);
  return [header?.widthPx, header?.heightPx];
}

for (const library of ["genai-2", "genai-3"] as const) {
  describe.skipIf(!areInstalled)(`the vendor's own library, ${library}`, () => {
    let service: SdkService;
    let sdk: Sdk;
    const open = (more: object = {}, apiKey = service.apiKey) =>
      startSdk(library, { apiKey, httpOptions: { baseUrl: service.url, ...more } });
    beforeAll(async () => {
      service = await startSdkService({ concurrentRequests: 1 });
      sdk = open();
    });
    afterAll(async () => {
      await sdk?.close();
      await service?.close();
    });

    it("[SDK-1] makes an image from a prompt and a picture with a wrong type, without any settings", async () => {
      const inlineData = { mimeType: "image/webp", data: png("a picture", 64, 96).toString("base64") };
      const contents = [{ text: "a red fox" }, { inlineData }];
      const { value } = await sdk.call<Answer>("models.generateContent", { model: MODEL, contents });
      expect(sizeOf(imagesOf([value])[0])).toEqual([848, 1264]);
    });

    it("[SDK-1] makes an image of the size that was asked for", async () => {
      const { value } = await sdk.call<Answer>("models.generateContent", FOX);
      const [image] = imagesOf([value]);
      expect(sizeOf(image)).toEqual([1376, 768]);
      expect(value.candidates?.[0]).toMatchObject({ content: { role: "model" }, finishReason: "STOP" });
      expect(value.modelVersion).toContain(MODEL);
      expect(value.usageMetadata?.totalTokenCount).toBeGreaterThan(0);
      expect(value.sdkHttpResponse.headers["x-request-id"]).toMatch(/^req_/);
    });

    it("[SDK-1] [OPT-8] gets the same image for the same seed, and another one for another", async () => {
      const seeded = async (seed: number) => {
        const wanted = { ...FOX, config: { ...config, seed } };
        return imagesOf([(await sdk.call<Answer>("models.generateContent", wanted)).value])[0]?.data;
      };
      const first = await seeded(7);
      expect(await seeded(7)).toBe(first);
      expect(await seeded(8)).not.toBe(first);
    });

    it("[SDK-1] edits an image: the answer has its ratio and not its bytes", async () => {
      const data = png("input", 300, 200).toString("base64");
      const contents = [{ text: "make it blue" }, { inlineData: { mimeType: "image/png", data } }];
      const edit = { model: MODEL, contents, config: { responseModalities: ["IMAGE"], imageConfig: {} } };
      const { value } = await sdk.call<Answer>("models.generateContent", edit);
      const [image] = imagesOf([value]);
      expect(sizeOf(image)).toEqual([1264, 848]);
      expect(image?.data).not.toBe(data);
    });

    it("reads a stream to its end: one image, and the last event says that all went well", async () => {
      const { value } = await sdk.call<Answer[]>("models.generateContentStream", FOX);
      expect(imagesOf(value)).toHaveLength(1);
      expect(sizeOf(imagesOf(value)[0])).toEqual([1376, 768]);
      expect(value.at(-1)?.candidates?.[0]?.finishReason).toBe("STOP");
      expect(value.at(-1)?.usageMetadata?.totalTokenCount).toBeGreaterThan(0);
    });

    it("lists the models, also page by page, and gets one", async () => {
      const ids = (findPreset("google")?.models ?? []).map(({ id }) => `models/${id}`);
      for (const args of [{}, { config: { pageSize: 1 } }]) {
        const { value } = await sdk.call<{ name: string; supportedActions: string[] }[]>("models.list", args);
        expect(value.map((model) => model.name)).toEqual(ids);
        expect(value[0]?.supportedActions).toContain("generateContent");
      }
      for (const model of [MODEL, `models/${MODEL}`]) {
        const { value } = await sdk.call<{ name: string }>("models.get", { model });
        expect(value).toMatchObject({ name: ids[0], displayName: expect.any(String) });
      }
    });

    const failures: [number, string, object][] = [
      [400, "INVALID_ARGUMENT", { ...FOX, config: { ...config, imageConfig: { aspectRatio: "7:5" } } }],
      [
        400,
        "INVALID_ARGUMENT",
        { model: MODEL, contents: "no image", config: { responseModalities: ["TEXT"] } },
      ],
      [404, "NOT_FOUND", { ...FOX, model: "gemini-none" }],
      [503, "UNAVAILABLE", { ...FOX, contents: "[[status:503]] a fox" }],
      [429, "RESOURCE_EXHAUSTED", { ...FOX, contents: "[[status:429]] a fox" }],
    ];
    for (const [status, word, request] of failures) {
      it(`gets ${status} ${word} as its typed error, from a stream too: ${JSON.stringify(request).slice(0, 60)}`, async () => {
        for (const method of ["models.generateContent", "models.generateContentStream"]) {
          const { error } = await sdk.call(method, request);
          expect(error).toMatchObject({ name: "ApiError", status });
          expect(error?.message).toContain(`"status":"${word}"`);
        }
      });
    }

    it("gets 401 for a wrong key", async () => {
      const stranger = open({}, "wrong");
      const { error } = await stranger.call("models.generateContent", FOX);
      expect(error).toMatchObject({ name: "ApiError", status: 401 });
      expect((await stranger.call("models.list", {})).error).toMatchObject({ status: 401 });
      await stranger.close();
    });

    it("gets 404 for a model that does not exist, and for what is not offered", async () => {
      expect((await sdk.call("models.get", { model: "gemini-none" })).error).toMatchObject({ status: 404 });
      const count = await sdk.call("models.countTokens", { model: MODEL, contents: "x" });
      expect(count.error).toMatchObject({ name: "ApiError", status: 404 });
    });

    it("sees a refusal in the answer, without an exception and without an image", async () => {
      const { value } = await sdk.call<Answer>("models.generateContent", {
        ...FOX,
        contents: "[[refuse]] a fox",
      });
      expect(imagesOf([value])).toEqual([]);
      expect(value.promptFeedback?.blockReason ?? value.candidates?.[0]?.finishReason).toMatch(
        /SAFETY|PROHIBITED/,
      );
    });

    it("retries after 429 when it is told to, and then has its image", async () => {
      const patient = open({ retryOptions: { attempts: 4 } });
      // Its process has started before the place is taken.
      await patient.call("models.list", {});
      const long = sdk.call<Answer>("models.generateContent", { ...FOX, contents: "[[delay:1500ms]] a fox" });
      await expect.poll(() => isBusy(service)).toBe(true);
      const second = await patient.call<Answer>("models.generateContent", { ...FOX, contents: "an owl" });
      expect(imagesOf([second.value])).toHaveLength(1);
      expect(imagesOf([(await long).value])).toHaveLength(1);
      await patient.close();
    });
  });
}

/** Whether a request is at work: its price is held. */
async function isBusy({ url, apiKey }: SdkService): Promise<boolean> {
  const answer = await fetch(`${url}/v1/account`, { headers: { authorization: `Bearer ${apiKey}` } });
  const { held } = (await answer.json()) as { held: number };
  return held > 0;
}
