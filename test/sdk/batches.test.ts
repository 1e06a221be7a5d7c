import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readImageHeader } from "../../src/contract/image-formats.ts";
import { tempDir } from "../support/temp-dir.ts";
import { areInstalled, type Sdk, startSdk } from "./sdk.ts";
import { MODEL, type SdkService, startSdkService } from "./service.ts";

interface Answer {
  candidates?: { content?: { parts: { inlineData?: { data: string } }[] } }[];
  promptFeedback?: { blockReason: string };
}
interface Job {
  name: string;
  displayName: string;
  model: string;
  state: string;
  createTime: string;
  endTime?: string;
  dest?: {
    fileName?: string;
    inlinedResponses?: { response?: Answer; error?: { message: string }; metadata?: { key: string } }[];
  };
}

const request = (prompt: string, imageSize = "1K") => ({
  contents: [{ role: "user", parts: [{ text: prompt }] }],
  generationConfig: { responseModalities: ["IMAGE"], imageConfig: { aspectRatio: "16:9", imageSize } },
});

function sizeOf(answer: Answer | undefined) {
  const data = answer?.candidates?.[0]?.content?.parts.find((part) => part.inlineData)?.inlineData?.data;
  const header = readImageHeader(Buffer.from(data ?? "", "base64"));
  return [header?.widthPx, header?.heightPx];
}

for (const library of ["genai-2", "genai-3"] as const) {
  describe.skipIf(!areInstalled)(`batch jobs of the vendor's own library, ${library}`, () => {
    let service: SdkService;
    let sdk: Sdk;
    beforeAll(async () => {
      service = await startSdkService({}, true);
      sdk = startSdk(library, { apiKey: service.apiKey, httpOptions: { baseUrl: service.url } });
    });
    afterAll(async () => {
      await sdk?.close();
      await service?.close();
    });

    const ended = async ({ name }: Job): Promise<Job> => {
      let job: Job | null = null;
      await expect
        .poll(
          async () => {
            job = (await sdk.call<Job>("batches.get", { name })).value;
            return job.state;
          },
          { timeout: 60_000 },
        )
        .not.toMatch(/PENDING|RUNNING/);
      return job as unknown as Job;
    };

    it("makes a job from a file, and reads its results from a file", async () => {
      const lines = [
        { key: "fox", request: request("a red fox") },
        { key: "fox", request: request("an owl", "2K") },
        { key: "no", request: request("[[refuse]] a fox") },
        { key: "odd", request: { contents: "no list" } },
      ];
      const path = join(await tempDir(), "lines.jsonl");
      await writeFile(path, lines.map((line) => JSON.stringify(line)).join("\n"));
      const file = await sdk.call<{ name: string }>("files.upload", {
        file: path,
        config: { mimeType: "jsonl" },
      });
      const config = { displayName: "from a file" };
      const created = await sdk.call<Job>("batches.create", { model: MODEL, src: file.value.name, config });
      expect(created.error).toBeUndefined();
      expect(created.value).toMatchObject({ displayName: "from a file", model: `models/${MODEL}` });
      expect(created.value.state).toMatch(/JOB_STATE_(PENDING|RUNNING)/);
      const job = await ended(created.value);
      expect(job).toMatchObject({ state: "JOB_STATE_SUCCEEDED", name: created.value.name });
      expect(Date.parse(job.endTime ?? "")).toBeGreaterThanOrEqual(Date.parse(job.createTime));
      const downloadPath = join(await tempDir(), "results.jsonl");
      await sdk.call("files.download", { file: job.dest?.fileName, downloadPath });
      const read = async () => (await readFile(downloadPath, "utf8").catch(() => "")).split("\n");
      // The library does not wait for the end of the file that it writes.
      await expect.poll(async () => (await read()).length).toBe(5);
      const results = (await read()).slice(0, 4).map((line) => JSON.parse(line));
      expect(results.map(({ key }) => key)).toEqual(["fox", "fox", "no", "odd"]);
      expect(results.slice(0, 2).map(({ response }) => sizeOf(response))).toEqual([
        [1376, 768],
        [2752, 1536],
      ]);
      expect(results[2].response.promptFeedback.blockReason).toBe("PROHIBITED_CONTENT");
      expect(results[3].error).toMatchObject({ code: 3 });
      const listed = await sdk.call<Job[]>("batches.list", { config: { pageSize: 1 } });
      expect(listed.value.map(({ name }) => name)).toContain(job.name);
      expect((await sdk.call("batches.delete", { name: job.name })).error).toBeUndefined();
      expect((await sdk.call("batches.get", { name: job.name })).error).toMatchObject({
        name: "ApiError",
        status: 404,
      });
    });

    it("makes a job from requests that come inline, with their responses in it", async () => {
      const config = { responseModalities: ["IMAGE"], imageConfig: { aspectRatio: "16:9" } };
      const src = [
        { contents: "a red fox", config, metadata: { key: "1" } },
        { contents: "[[fail:PROVIDER_ITEM_FAILED]] a fox", config, metadata: { key: "2" } },
      ];
      const created = await sdk.call<Job>("batches.create", {
        model: MODEL,
        src,
        config: { displayName: "x" },
      });
      expect(created.error).toBeUndefined();
      const job = await ended(created.value);
      expect(job.state).toBe("JOB_STATE_SUCCEEDED");
      const [fox, failed] = job.dest?.inlinedResponses ?? [];
      expect(sizeOf(fox?.response)).toEqual([1376, 768]);
      expect(failed?.error?.message).toContain("PROVIDER_ITEM_FAILED");
      expect(fox?.metadata).toEqual({ key: "1" });
    });

    it("cancels a job, and gets typed errors", async () => {
      const src = [{ contents: "[[delay:10m]] a fox" }];
      const { value } = await sdk.call<Job>("batches.create", { model: MODEL, src });
      const early = await sdk.call("batches.delete", { name: value.name });
      expect(early.error).toMatchObject({ name: "ApiError", status: 400 });
      expect((await sdk.call("batches.cancel", { name: value.name })).error).toBeUndefined();
      expect(await ended(value)).toMatchObject({ state: "JOB_STATE_CANCELLED" });
      const unknown = await sdk.call("batches.create", { model: MODEL, src: "files/none" });
      expect(unknown.error).toMatchObject({ name: "ApiError", status: 400 });
      expect(unknown.error?.message).toContain("FAILED_PRECONDITION");
      expect((await sdk.call("batches.get", { name: "batches/none" })).error).toMatchObject({ status: 404 });
    });
  });
}
