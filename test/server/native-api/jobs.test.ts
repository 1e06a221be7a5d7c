import { describe, expect, it } from "vitest";
import type { NativeBody } from "../../../src/contract/native-api.ts";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import {
  batchIdOf,
  createInline,
  createJob,
  endedJob,
  inlinedOf,
  resultLineSchema,
} from "../../support/jobs.ts";
import { content, errorOf, generate, imagePart, imagesOf, refusalOf } from "../../support/realtime.ts";
import { MODEL, openBeside, startTestService, type TestService } from "../../support/service.ts";
import { ask, upload } from "../../support/uploads.ts";

const line = (prompt: string, key?: string, config: object = {}, parts: Record<string, unknown>[] = []) => ({
  request: content(prompt, config as Record<string, unknown>, parts),
  ...(key === undefined ? {} : { metadata: { key } }),
});

async function expectSound(data: string) {
  const { stores, blobs } = await openBeside(data);
  expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  return stores;
}

describe("batch jobs of the native API", () => {
  it("[OPT-8] makes each line with its own seed", async () => {
    const provider = new FakeProvider();
    const service = await startTestService({ providers: [provider] });
    const seeded = (prompt: string, seed: number) => {
      const { request } = line(prompt);
      return { request: { ...request, generationConfig: { ...Object(request.generationConfig), seed } } };
    };
    const job = await createInline(service, [seeded("a", 0), line("b"), seeded("c", -1)]);
    const { metadata } = await endedJob(service, job);
    expect(metadata.batchStats).toMatchObject({ successfulRequestCount: "2", failedRequestCount: "1" });
    const asked = new Map(provider.requests.map((request) => [request.prompt, request]));
    expect(asked.get("a")).toMatchObject({ seed: 0, options: { seed: 0 } });
    expect(asked.get("b")?.options).toMatchObject({ seed: null });
  });

  it("makes each line with its own size, ratio, type, references and earlier turns", async () => {
    const provider = new FakeProvider();
    const service = await startTestService({ providers: [provider] });
    const fox = await tinyPng(1);
    const second = {
      contents: [
        { role: "user", parts: [{ text: "a fox" }] },
        { role: "model", parts: [imagePart(fox)] },
        { role: "user", parts: [{ text: "make it blue" }] },
      ],
      generationConfig: {
        responseModalities: ["IMAGE"],
        imageConfig: { aspectRatio: "16:9", imageSize: "2K", outputMimeType: "image/webp" },
      },
    };
    const created = await createInline(service, [line("an owl", "a"), { request: second }, line("owl", "a")]);
    expect(created.metadata).toMatchObject({
      state: "BATCH_STATE_PENDING",
      displayName: "foxes",
      model: `models/${MODEL}`,
      batchStats: {},
    });
    expect(created).not.toHaveProperty("done");
    const job = await endedJob(service, created);
    expect(job).toMatchObject({
      name: created.name,
      done: true,
      metadata: {
        state: "BATCH_STATE_SUCCEEDED",
        batchStats: { requestCount: "3", successfulRequestCount: "3" },
      },
    });
    expect(job.metadata.batchStats).not.toHaveProperty("failedRequestCount");
    const results = inlinedOf(job);
    expect(results.map(({ metadata }) => metadata)).toEqual([{ key: "a" }, undefined, { key: "a" }]);
    expect(imagesOf(results[1]?.response ?? {})).toEqual([{ mimeType: "image/png", bytes: await tinyPng() }]);
    expect(job.response?.inlinedResponses).toEqual(job.metadata.output?.inlinedResponses);
    const asked = provider.requests.find(({ prompt }) => prompt === "make it blue");
    expect(asked).toMatchObject({
      earlier: "a fox",
      options: { size: "2K", ratio: "16:9", keepsRatio: false, mimeType: "image/webp" },
      pixels: { widthPx: 2752, heightPx: 1536 },
      origin: "batch",
    });
    expect(await asked?.references[0]?.read()).toEqual(fox);
    expect(provider.requests.find(({ prompt }) => prompt === "an owl")).toMatchObject({
      options: { size: "1K", ratio: "1:1" },
    });
    const stores = await expectSound(service.data);
    const batch = await stores.read.batches.byId(batchIdOf(job));
    const items = await stores.read.items.page(batchIdOf(job), { afterPosition: -1, limit: 9 });
    const prices = items.map(({ priceMicroUsd }) => priceMicroUsd ?? 0);
    expect(new Set(prices).size).toBe(2);
    expect(batch?.actualMicroUsd).toBe(prices.reduce((sum, price) => sum + price, 0));
    expect(items.map(({ customId }) => customId)).toEqual(["line_000001", "line_000002", "line_000003"]);
  });

  it("[LINES-4] a line that cannot be made comes back as an error, and a refusal as a response", async () => {
    const provider = new FakeProvider();
    provider.answer = async ({ prompt }) => {
      if (prompt === "bad") throw new ProviderError("SAFETY_BLOCKED", "not this");
      if (prompt === "nothing") throw new ProviderError("EMPTY_IMAGE_OUTPUT", "nothing");
      if (prompt === "broken") throw new ProviderError("PROVIDER_ITEM_FAILED", "it broke");
      return made(await tinyPng());
    };
    const service = await startTestService({ providers: [provider] });
    const requests = [
      line("bad", "1"),
      line("nothing", "2"),
      line("broken", "3"),
      { request: { contents: [] }, metadata: { key: "4", more: { mime_type: [1] } } },
      line("good", "5"),
      line("odd", "6", { aspectRatio: "5:1" }),
    ];
    const job = await endedJob(service, await createInline(service, requests));
    expect(job.metadata).toMatchObject({
      state: "BATCH_STATE_SUCCEEDED",
      batchStats: { requestCount: "6", successfulRequestCount: "1", failedRequestCount: "5" },
    });
    const [bad, nothing, broken, empty, good, odd] = inlinedOf(job);
    expect(bad?.response?.promptFeedback).toEqual({
      blockReason: "PROHIBITED_CONTENT",
      blockReasonMessage: "not this",
    });
    expect(bad?.response).not.toHaveProperty("candidates");
    expect(nothing?.response?.candidates).toMatchObject([{ finishReason: "NO_IMAGE" }]);
    expect(broken).toEqual({ error: { code: 13, message: "it broke" }, metadata: { key: "3" } });
    expect(empty).toMatchObject({ error: { code: 3 }, metadata: { key: "4", more: { mime_type: [1] } } });
    expect(empty?.error?.message).toContain("generationConfig");
    expect(imagesOf(good?.response ?? {})).toHaveLength(1);
    expect(odd?.error?.message).toContain("generationConfig.imageConfig.aspectRatio");
    const stores = await expectSound(service.data);
    const batch = await stores.read.batches.byId(batchIdOf(job));
    expect(batch).toMatchObject({ source: "native", itemCount: 6, failCount: 5, successCount: 1 });
    // Only what could be made was put on hold.
    expect(batch?.holdMicroUsd).toBe(4 * (batch?.price.holdMicroUsd ?? 0));
  });

  it("refuses what is no job, in the style of the API", async () => {
    const service = await startTestService({ workers: true });
    const ask = async (body: unknown) =>
      refusalOf(await generate(service, body, { verb: "batchGenerateContent" }));
    const at = "batch.inputConfig";
    const invalid = "INVALID_ARGUMENT";
    expect(await ask({})).toEqual([400, invalid, "batch"]);
    expect(await ask({ batch: { inputConfig: {} } })).toEqual([400, invalid, at]);
    const inline = (requests: object[]) => ({ batch: { input_config: { requests: { requests } } } });
    expect(await ask(inline([]))).toEqual([400, invalid, `${at}.requests.requests`]);
    expect(await ask(inline(Array(101).fill(line("x"))))).toEqual([400, invalid, `${at}.requests.requests`]);
    const file = { batch: { input_config: { file_name: "files/abc" } } };
    for (const fileName of ["files/abc", "https://elsewhere.test/v1beta/files/none", "../etc/passwd"]) {
      const refused = await ask({ batch: { inputConfig: { fileName } } });
      expect(refused).toEqual([400, "FAILED_PRECONDITION", `${at}.fileName`]);
    }
    const unknown = await generate(service, file, { verb: "batchGenerateContent", model: "no-such" });
    expect([unknown.status, (await errorOf(unknown)).status]).toEqual([404, "NOT_FOUND"]);
    const big = inline([line("x".repeat(21 * 1024 * 1024))]);
    expect((await generate(service, big, { verb: "batchGenerateContent" })).status).toBe(413);
  });
});

type Line = Record<string, unknown>;

const jsonl = (lines: readonly (Line | string)[]) =>
  lines.map((line) => `${typeof line === "string" ? line : JSON.stringify(line)}\n`).join("");

async function fromFile(
  service: TestService,
  lines: readonly (Line | string)[],
  name?: string,
): Promise<NativeBody<"Job">> {
  const file = await upload(service, jsonl(lines), { mimeType: "jsonl" });
  return createJob(service, { fileName: file.name }, name);
}

async function resultsOf(service: TestService, job: NativeBody<"Job">) {
  const name = job.metadata.output?.responsesFile ?? "";
  const answer = await ask(service, `/v1beta/${name}:download?alt=media`);
  expect(answer.status).toBe(200);
  const text = await answer.text();
  expect(text.endsWith("\n")).toBe(true);
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => resultLineSchema.parse(JSON.parse(line)));
}

describe("a job from a file", () => {
  it("[LINES-11] makes its lines and gives their results in a file, in order, with the keys as they were", async () => {
    const provider = new FakeProvider();
    provider.answer = async ({ prompt }) => made(await tinyPng(prompt.length));
    const service = await startTestService({ providers: [provider] });
    const fox = await tinyPng(77);
    const image = await upload(service, fox, { mimeType: "image/png" });
    const fileData = { fileData: { fileUri: image.uri, mimeType: "image/png" } };
    const job = await endedJob(
      service,
      await fromFile(service, [
        { key: "a", request: content("x") },
        { key: "a", request: content("xx", {}, [imagePart(fox), fileData]) },
        "",
        "{no json",
        { request: content("xxx") },
        { key: 'q"\n\u2028', request: content("xxxx", {}, [{ fileData: { fileUri: "files/none" } }]) },
        content("xxxxx"),
      ]),
    );
    expect(job.metadata).toMatchObject({
      state: "BATCH_STATE_SUCCEEDED",
      inputConfig: { fileName: expect.stringMatching(/^files\/[a-z0-9]{12}$/) },
      batchStats: { requestCount: "6", successfulRequestCount: "4", failedRequestCount: "2" },
      output: { responsesFile: `files/batch-${job.name.slice("batches/".length)}` },
    });
    expect(job.response?.responsesFile).toBe(job.metadata.output?.responsesFile);
    const results = await resultsOf(service, job);
    expect(results.map(({ key }) => key)).toEqual(["a", "a", undefined, undefined, 'q"\n\u2028', undefined]);
    const images = results.map(({ response }) => (response ? imagesOf(response) : []));
    for (const [at, prompt] of [
      [0, "x"],
      [1, "xx"],
      [3, "xxx"],
      [5, "xxxxx"],
    ] as const) {
      expect(images[at]?.map(({ bytes }) => bytes)).toEqual([await tinyPng(prompt.length)]);
    }
    expect(results[2]).toMatchObject({ error: { code: 3, message: "line 4: The line is not valid JSON." } });
    expect(results[4]?.error).toMatchObject({ code: 3, message: expect.stringContaining("fileUri") });
    const two = provider.requests.find(({ prompt }) => prompt === "xx");
    expect(two?.options.keepsRatio).toBe(true);
    expect(await Promise.all(two?.references.map((reference) => reference.read()) ?? [])).toEqual([fox, fox]);
    const list = await (await ask(service, "/v1beta/batches")).json();
    expect(list.operations[0].metadata.output).toEqual(job.metadata.output);
    const files = await (await ask(service, "/v1beta/files")).json();
    expect(files.files.map(({ name }: { name: string }) => name)).not.toContain(
      job.metadata.output?.responsesFile,
    );
    await service.expectBooks();
  });

  it("[LINES-4] has an error for each line that cannot be read, and makes the others", async () => {
    const service = await startTestService({ config: { limits: { realtimeBodyBytes: 2048 } } });
    const good = (key: string) => JSON.stringify({ key, request: content("fox") });
    const wrong = [
      ['{"key":"a","request":{', "a"],
      ["[1]", undefined],
      ["null", undefined],
      ['{"key":"b"}', "b"],
      ['{"key":"c","request":7}', "c"],
      ['{"key":"d","request":{"contents":"no"}}', "d"],
      [JSON.stringify({ key: "large", request: content("x".repeat(5000)) }), "large"],
    ] as const;
    const lines = [`\ufeff${good("first")}\r`, ...wrong.map(([line]) => line), " \t\r", good("last")];
    const job = await endedJob(service, await fromFile(service, lines));
    const results = await resultsOf(service, job);
    expect(results.map(({ key, error }) => [key, error === undefined])).toEqual([
      ["first", true],
      ...wrong.map(([, key]) => [key, false]),
      ["last", true],
    ]);
    expect(results.at(-2)?.error?.message).toBe("line 8: The line is larger than 2048 bytes.");
    expect(results.map(({ error }) => error?.message).join()).not.toContain("body");
  });

  it("[LINES-11] works below /v1 for clients with the vendor's key", async () => {
    const service = await startTestService();
    const file = await upload(service, jsonl([{ key: "a", request: content("x") }]), {}, { prefix: "/v1" });
    const body = { batch: { displayName: "v1", inputConfig: { fileName: file.uri } } };
    const created = await generate(service, body, { verb: "batchGenerateContent", prefix: "/v1" });
    const job = await endedJob(service, (await created.json()) as NativeBody<"Job">);
    const now = await (await ask(service, `/v1/${job.name}`)).json();
    expect(now).toEqual(job);
    const results = await ask(service, `/v1/${job.metadata.output?.responsesFile}:download?alt=media`);
    expect(await results.text()).toContain('"key":"a"');
    expect(
      await (await ask(service, `/v1/${job.name}:cancel`, { method: "POST", body: "{}" })).json(),
    ).toEqual({});
    expect(await (await ask(service, `/v1/${job.name}`, { method: "DELETE" })).json()).toEqual({});
    expect((await (await ask(service, "/v1/batches?pageSize=5")).json()).operations).toEqual([]);
  });
});
