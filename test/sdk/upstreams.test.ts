import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { tempDir } from "../support/temp-dir.ts";
import { imageOf, lookAt, showsPrompt } from "../support/upstreams/images.ts";
import { BATCH_MODEL, startNativeBatch } from "../support/upstreams/native-batch.ts";
import { startOpenaiBatch } from "../support/upstreams/openai-batch.ts";
import { areInstalled, startSdk } from "./sdk.ts";

interface NativeJob {
  name: string;
  state: string;
  displayName: string;
  dest?: { fileName?: string; inlinedResponses?: { response?: Loose; metadata?: { key: string } }[] };
}

// biome-ignore lint/suspicious/noExplicitAny: the shapes of the libraries are read loosely here.
type Loose = any;

const lineOf = (key: string, prompt: string) =>
  JSON.stringify({
    key,
    request: {
      contents: [{ role: "user", parts: [{ text: prompt }] }],
      generationConfig: { responseModalities: ["IMAGE"], imageConfig: { aspectRatio: "16:9" } },
    },
  });

for (const library of ["genai-2", "genai-3"] as const) {
  describe.skipIf(!areInstalled)(`the fake of batch jobs under the vendor's own library, ${library}`, () => {
    const opened = async () => {
      const fake = await startNativeBatch();
      onTestFinished(() => fake.close());
      const sdk = startSdk(library, { apiKey: fake.settings.key, httpOptions: { baseUrl: fake.url } });
      onTestFinished(() => sdk.close());
      return { fake, sdk };
    };

    it("[SDK-9] uploads a file in chunks, makes a job of it, polls, lists, downloads and deletes", async () => {
      const { fake, sdk } = await opened();
      const directory = await tempDir();
      const input = join(directory, "in.jsonl");
      const filler = `x${" ".repeat(8_400_000)}`;
      await writeFile(input, `${lineOf("a", "a hill")}\n${lineOf("b", `a lake ${filler}`)}\n`);
      const { value: file } = await sdk.call<Loose>("files.upload", {
        file: input,
        config: { mimeType: "jsonl", displayName: "in" },
      });
      expect(fake.requests.map(({ kind }) => kind)).toEqual(["upload", "chunk", "chunk"]);
      const bytes = await readFile(input);
      const hash = createHash("sha256").update(bytes).digest("hex");
      expect(file).toMatchObject({ state: "ACTIVE", sha256Hash: Buffer.from(hash).toString("base64") });

      const create = { model: BATCH_MODEL, src: file.name, config: { displayName: "mine" } };
      const { value: created } = await sdk.call<NativeJob>("batches.create", create);
      expect(created).toMatchObject({ state: "JOB_STATE_PENDING", displayName: "mine" });
      const { value: got } = await sdk.call<NativeJob>("batches.get", { name: created.name });
      expect(got).toMatchObject({ state: "JOB_STATE_SUCCEEDED" });
      const { value: jobs } = await sdk.call<NativeJob[]>("batches.list", {});
      expect(jobs.map(({ name }) => name)).toEqual([created.name]);

      const output = join(directory, "out.jsonl");
      await sdk.call("files.download", { file: got.dest?.fileName, downloadPath: output });
      await expect
        .poll(async () => (await readFile(output, "utf8").catch(() => "")).split("\n").length)
        .toBe(3);
      const [line = ""] = (await readFile(output, "utf8")).split("\n");
      const { key, response } = JSON.parse(line);
      const image = Buffer.from(response.candidates[0].content.parts.at(-1).inlineData.data, "base64");
      expect([key, await lookAt(image), await showsPrompt(image, "a hill")]).toEqual([
        ...["a", { type: "png", width: 1376, height: 768 }, true],
      ]);

      for (const method of ["files.delete", "batches.delete"])
        expect(
          (await sdk.call(method, { name: method.startsWith("files") ? file.name : created.name })).error,
        ).toBeUndefined();
      expect([fake.book.files.size, fake.book.payments().length]).toEqual([0, 2]);
      expect((await sdk.call("batches.list", {})).value).toEqual([]);
    });

    it("[SDK-9] makes a job of requests in the call, and cancels one", async () => {
      const { fake, sdk } = await opened();
      const src = [{ contents: "a hill", metadata: { key: "a" }, config: { responseModalities: ["IMAGE"] } }];
      const { value: job } = await sdk.call<NativeJob>("batches.create", { model: BATCH_MODEL, src });
      const { value: got } = await sdk.call<NativeJob>("batches.get", { name: job.name });
      const [answer] = got.dest?.inlinedResponses ?? [];
      expect([answer?.metadata?.key, answer?.response.candidates]).toEqual(["a", [expect.anything()]]);
      fake.book.plan = () => ({ runningMs: Number.POSITIVE_INFINITY });
      const { value: stuck } = await sdk.call<NativeJob>("batches.create", { model: BATCH_MODEL, src });
      expect((await sdk.call("batches.cancel", { name: stuck.name })).error).toBeUndefined();
      expect((await sdk.call<NativeJob>("batches.get", { name: stuck.name })).value.state).toBe(
        "JOB_STATE_CANCELLED",
      );
      expect((await sdk.call("batches.get", { name: "batches/none" })).error?.status).toBe(404);
    });
  });
}

for (const library of ["openai", "openai-7"] as const) {
  describe.skipIf(!areInstalled)(`the fake of batch jobs under the OpenAI library, ${library}`, () => {
    it("[SDK-9] uploads, makes jobs of images and edits, lists, cancels, reads results and deletes", async () => {
      const fake = await startOpenaiBatch();
      onTestFinished(() => fake.close());
      const sdk = startSdk(library, { apiKey: fake.settings.key, baseURL: `${fake.url}/v1`, maxRetries: 0 });
      onTestFinished(() => sdk.close());
      const directory = await tempDir();
      const write = async (name: string, bytes: string | Buffer) => {
        await writeFile(join(directory, name), bytes);
        return { stream: join(directory, name) };
      };
      const picture = await write("in.png", await imageOf("a picture", { width: 64, height: 64 }));
      const { value: reference } = await sdk.call<Loose>("files.create", {
        file: picture,
        purpose: "vision",
      });
      const jobOf = async (url: string, more: object) => {
        const body = { model: "gpt-image-2", prompt: "a hill", ...more };
        const file = await write("in.jsonl", JSON.stringify({ custom_id: "a", method: "POST", url, body }));
        const expiry = { anchor: "created_at", seconds: 3600 };
        const upload = { file, purpose: "batch", expires_after: expiry };
        const { value: input } = await sdk.call<Loose>("files.create", upload);
        const create = {
          input_file_id: input.id,
          endpoint: url,
          completion_window: "24h",
          metadata: { job: "1" },
        };
        const { value } = await sdk.call<Loose>("batches.create", create);
        expect(value).toMatchObject({ status: "validating", metadata: { job: "1" } });
        return value.id as string;
      };
      for (const [url, more] of [
        ["/v1/images/generations", { size: "1024x1024" }],
        ["/v1/images/edits", { images: [{ file_id: reference.id }] }],
      ] as const) {
        const { value: job } = await sdk.call<Loose>("batches.retrieve", await jobOf(url, more));
        expect([job.status, job.request_counts]).toEqual([
          "completed",
          { total: 1, completed: 1, failed: 0 },
        ]);
        const row = JSON.parse((await sdk.call<string>("files.content", job.output_file_id)).value);
        const image = Buffer.from(row.response.body.data[0].b64_json, "base64");
        expect([row.custom_id, await showsPrompt(image, "a hill")]).toEqual(["a", true]);
        expect((await sdk.call("files.delete", job.input_file_id)).value).toMatchObject({ deleted: true });
      }
      fake.book.plan = () => ({ runningMs: Number.POSITIVE_INFINITY, cancelMs: Number.POSITIVE_INFINITY });
      const last = await jobOf("/v1/images/generations", {});
      expect((await sdk.call("batches.cancel", last)).value).toMatchObject({ status: "cancelling" });
      const { value: jobs } = await sdk.call<Loose[]>("batches.list", { limit: 1 });
      expect([jobs.length, jobs[0].id]).toEqual([3, last]);
      expect((await sdk.call("batches.retrieve", "batch_none")).error?.classes).toContain("NotFoundError");
    });
  });
}
