import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readImageHeader } from "../../src/contract/image-formats.ts";
import { imageOf, padded } from "../support/upstreams/images.ts";
import { areInstalled, type Sdk, startSdk } from "./sdk.ts";
import { MODEL, type SdkService, startSdkService } from "./service.ts";

interface Batch {
  id: string;
  provider: string;
  status: "pending" | "completed" | "failed";
  rawStatus?: string;
  requestCounts?: { total: number; completed: number; failed: number };
  providerMetadata?: { google?: { inputFileId?: string } };
}
interface Result {
  id: string;
  type: string;
  status: string;
  error?: { code?: string; message: string };
  images: { base64: string; mediaType: string }[];
}

/** The library sends more than 20 MB as a file. */
const LARGE = 8_000_000;

const request = (id: string, prompt: unknown, aspectRatio = "16:9") => ({
  ...{ id, type: "image", model: MODEL, prompt, aspectRatio },
});

function sizeOf(result: Result | undefined) {
  const [image] = result?.images ?? [];
  const header = readImageHeader(Buffer.from(image?.base64 ?? "", "base64"));
  expect(header?.mimeType).toBe(image?.mediaType);
  return [header?.widthPx, header?.heightPx];
}

// The library's batches of images are the vendor's; its batches at OpenAI are of texts only.
describe.skipIf(!areInstalled)("image batches of Vercel's AI SDK", () => {
  let service: SdkService;
  let sdk: Sdk;
  beforeAll(async () => {
    service = await startSdkService({}, true);
    sdk = startSdk("@ai-sdk/google", { apiKey: service.apiKey, baseURL: `${service.url}/v1beta` });
  });
  afterAll(async () => {
    await sdk?.close();
    await service?.close();
  });

  const started = async (requests: object[]): Promise<Batch> => {
    const { value, error } = await sdk.call<Batch>("batches.start", requests);
    expect(error).toBeUndefined();
    return value;
  };
  const ended = async (batch: Batch): Promise<Batch> => {
    let last = batch;
    const look = async () => {
      last = (await sdk.call<Batch>("batches.status", batch)).value;
      return last.status;
    };
    await expect.poll(look, { timeout: 60_000 }).not.toBe("pending");
    return last;
  };
  const results = async (batch: Batch): Promise<Map<string, Result>> => {
    const { value, error } = await sdk.call<Result[]>("batches.results", batch);
    expect(error).toBeUndefined();
    return new Map(value.map((result) => [result.id, result]));
  };

  it("start inline, are polled and listed, and give images, refusals and failures by id", async () => {
    const batch = await started([
      request("fox", "a red fox"),
      request("owl", "an owl", "1:1"),
      request("no", "[[refuse]] a fox"),
      request("bad", "[[fail:PROVIDER_ITEM_FAILED]] a fox"),
    ]);
    expect(await ended(batch)).toMatchObject({
      ...{ status: "completed", rawStatus: "BATCH_STATE_SUCCEEDED" },
      requestCounts: { total: 4, completed: 2, failed: 2 },
    });
    const answers = await results(batch);
    expect([sizeOf(answers.get("fox")), sizeOf(answers.get("owl"))]).toEqual([
      [1376, 768],
      [1024, 1024],
    ]);
    expect(answers.get("no")).toMatchObject({ status: "failed", error: { code: "prompt_blocked" } });
    expect(answers.get("bad")?.error?.message).toContain("PROVIDER_ITEM_FAILED");
    const { value: page } = await sdk.call<{ batches: Batch[] }>("batches.list", { limit: 1 });
    expect(page.batches).toMatchObject([{ id: batch.id, status: "completed" }]);
  });

  it("upload large ones as a file, and read their results from a file", async () => {
    const picture = padded(await imageOf("a picture", { width: 64, height: 48 }), LARGE).toString("base64");
    const prompt = { text: "like this", images: [picture] };
    const batch = await started(["a", "b", "c"].map((id) => request(id, prompt)));
    expect(batch.providerMetadata?.google?.inputFileId).toMatch(/^files\//);
    expect(await ended(batch)).toMatchObject({ status: "completed" });
    const answers = await results(batch);
    expect(["a", "b", "c"].map((id) => sizeOf(answers.get(id)))).toEqual(Array(3).fill([1376, 768]));
  });

  it("are cancelled, and reject with the library's own errors", async () => {
    const batch = await started([request("slow", "[[delay:10m]] a fox")]);
    const early = await sdk.call("batches.results", batch);
    expect(early.error?.message).toContain("not complete");
    expect((await sdk.call("batches.cancel", batch)).error).toBeUndefined();
    expect(await ended(batch)).toMatchObject({ status: "failed", rawStatus: "BATCH_STATE_CANCELLED" });
    const unknown = await sdk.call("batches.status", { ...batch, id: "batches/none" });
    expect(unknown.error).toMatchObject({ name: "AI_APICallError", status: 404 });
    const model = { ...request("x", "a fox"), model: "gemini-none-image" };
    expect((await sdk.call("batches.start", [model])).error).toMatchObject({ name: "AI_APICallError" });
  });
});
