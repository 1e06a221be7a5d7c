import { describe, expect, it } from "vitest";
import { issueKey } from "../../../../src/domain/accounts.ts";
import { checkInvariants } from "../../../../src/domain/check-invariants.ts";
import { ProviderError } from "../../../../src/domain/ports/image-provider.ts";
import { systemClock } from "../../../../src/kernel/clock.ts";
import { randomIds } from "../../../../src/kernel/ids.ts";
import { FakeProvider, made, tinyPng } from "../../../support/fake-provider.ts";
import { gate } from "../../../support/gate.ts";
import { askJobs, batchIdOf, createInline, endedJob, inlinedOf, jobOf } from "../../../support/jobs.ts";
import { content, errorOf, generate, imagePart, imagesOf, refusalOf } from "../../../support/realtime.ts";
import { MODEL, openBeside, startTestService } from "../../../support/service.ts";

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
      tier: "2K",
      ratio: "16:9",
      keepsRatio: false,
      size: { widthPx: 2752, heightPx: 1536 },
      mimeType: "image/webp",
      origin: "batch",
    });
    expect(await asked?.references[0]?.read()).toEqual(fox);
    expect(provider.requests.find(({ prompt }) => prompt === "an owl")).toMatchObject({
      tier: "1K",
      ratio: "1:1",
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

  it("a job that cannot be paid has failed, with the reason, and holds nothing", async () => {
    const config = { models: undefined };
    const service = await startTestService({ config });
    const { stores } = await openBeside(service.data);
    const account = await stores.read.accounts.byName("default");
    await stores.write((tx) =>
      tx.accounts.change(account?.id ?? "", { balanceMicroUsd: -999_990_000, heldMicroUsd: 0 }),
    );
    const job = await endedJob(
      service,
      await createInline(service, [line("a fox", "1"), line("an owl", "2")]),
    );
    expect(job).toMatchObject({
      done: true,
      metadata: { state: "BATCH_STATE_FAILED", batchStats: {} },
      error: { code: 9 },
    });
    expect(job.error?.message).toContain("on hold");
    expect(job).not.toHaveProperty("response");
    expect(job.metadata).not.toHaveProperty("output");
    expect(await stores.read.accounts.byName("default")).toMatchObject({ heldMicroUsd: 0 });
    expect(await stores.read.batches.byId(batchIdOf(job))).toMatchObject({ actualMicroUsd: 0, itemCount: 0 });
  });

  it("can be cancelled; the results that exist stay, and are paid for", async () => {
    const first = gate();
    const provider = new FakeProvider({ concurrency: 1 });
    provider.answer = async ({ prompt }, signal) => {
      if (prompt === "quick") return made(await tinyPng());
      first.open();
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    };
    const service = await startTestService({ providers: [provider] });
    const created = await createInline(service, [line("quick", "1"), line("slow", "2")]);
    const { stores } = await openBeside(service.data);
    const madeCount = async () => (await stores.read.batches.byId(batchIdOf(created)))?.successCount;
    await Promise.all([first.promise, expect.poll(madeCount).toBe(1)]);
    expect((await jobOf(service, created)).metadata.state).toBe("BATCH_STATE_RUNNING");
    const refused = await askJobs(service, created.name, { method: "DELETE" });
    expect([refused.status, (await errorOf(refused)).status]).toEqual([400, "FAILED_PRECONDITION"]);
    const answer = await askJobs(service, `${created.name}:cancel`, { method: "POST", body: "{}" });
    expect([answer.status, await answer.json()]).toEqual([200, {}]);
    const job = await endedJob(service, created);
    expect(job).toMatchObject({
      done: true,
      metadata: { state: "BATCH_STATE_CANCELLED" },
      error: { code: 1 },
    });
    const results = inlinedOf(job);
    expect(imagesOf(results[0]?.response ?? {})).toHaveLength(1);
    expect(results[1]).toMatchObject({ error: { code: 1 }, metadata: { key: "2" } });
    const again = await askJobs(service, `${created.name}:cancel`, { method: "POST" });
    expect([again.status, await again.json()]).toEqual([200, {}]);
    await expectSound(service.data);
    const gone = await askJobs(service, created.name, { method: "DELETE" });
    expect([gone.status, await gone.json()]).toEqual([200, {}]);
    const unknown = await askJobs(service, created.name);
    expect([unknown.status, (await errorOf(unknown)).status]).toEqual([404, "NOT_FOUND"]);
  });

  it("lists the jobs of the key in pages, newest first, and no other batches", async () => {
    const service = await startTestService();
    const names: string[] = [];
    for (const name of ["a", "b", "c"]) names.unshift((await createInline(service, [line("x")], name)).name);
    await service.submit({ model: MODEL, items: [{ prompt: "of the batch API" }] });
    const page = async (query: string) => (await askJobs(service, `batches${query}`)).json();
    const first = await page("?pageSize=2");
    expect(first.operations.map(({ name }: { name: string }) => name)).toEqual(names.slice(0, 2));
    const second = await page(`?pageSize=2&pageToken=${first.nextPageToken}`);
    expect(second.operations.map(({ name }: { name: string }) => name)).toEqual(names.slice(2));
    expect(second).not.toHaveProperty("nextPageToken");
    expect((await page("")).operations).toHaveLength(3);
    const bad = await askJobs(service, "batches?pageToken=zzz");
    expect([bad.status, (await errorOf(bad)).status]).toEqual([400, "INVALID_ARGUMENT"]);
  });

  it("a job whose images were deleted shows the state that it ended in", async () => {
    const service = await startTestService();
    const job = await endedJob(service, await createInline(service, [line("x", "1")]));
    await service.ask(`/${batchIdOf(job)}/outputs`, { method: "DELETE" });
    const now = await jobOf(service, job);
    expect(now).toMatchObject({ done: true, metadata: { state: "BATCH_STATE_SUCCEEDED" } });
    expect(now.metadata).not.toHaveProperty("output");
  });

  it("the batch API shows a job with its source, and does not retry it", async () => {
    const service = await startTestService();
    const job = await endedJob(service, await createInline(service, [line("x", "1")], "by the vendor's way"));
    const batch = await service.batch(batchIdOf(job));
    expect(batch).toMatchObject({ source: "native", task_name: "by the vendor's way", status: "completed" });
    const retry = await service.create({ model: MODEL, parent_batch_id: batch.id, items: [{ prompt: "x" }] });
    expect(retry.status).toBe(400);
    expect((await retry.json()).error).toMatchObject({
      code: "BATCH_IMAGE_INVALID_ITEMS",
      param: "parent_batch_id",
    });
    await expect(service.retry(batch.id)).rejects.toMatchObject({ code: "BATCH_IMAGE_INVALID_ITEMS" });
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
    expect(await ask(file)).toEqual([400, "FAILED_PRECONDITION", `${at}.fileName`]);
    const unknown = await generate(service, file, { verb: "batchGenerateContent", model: "no-such" });
    expect([unknown.status, (await errorOf(unknown)).status]).toEqual([404, "NOT_FOUND"]);
    const big = inline([line("x".repeat(21 * 1024 * 1024))]);
    expect((await generate(service, big, { verb: "batchGenerateContent" })).status).toBe(413);
  });

  it("another key's job is an unknown one", async () => {
    const service = await startTestService();
    const { name } = await createInline(service, [line("x")]);
    const { stores } = await openBeside(service.data);
    const accountId = (await stores.read.accounts.byName("default"))?.id ?? "";
    const facts = { name: "other", accountId, group: "default", expiresAtMs: null };
    const other = await stores.write((tx) => issueKey(tx, { clock: systemClock, ids: randomIds }, facts));
    const headers = { "x-vendorx-api-key": other.key, "x-request-id": "same" };
    const unknown = `batches/${"0".repeat(32)}`;
    for (const [method, verb] of [
      ["GET", ""],
      ["DELETE", ""],
      ["POST", ":cancel"],
      ["POST", ":delete"],
    ] as const) {
      const foreign = await askJobs(service, `${name}${verb}`, { method, headers });
      const none = await askJobs(service, `${unknown}${verb}`, { method, headers });
      expect([foreign.status, await foreign.text()]).toEqual([404, await none.text()]);
    }
    expect((await (await askJobs(service, "batches", { headers })).json()).operations).toEqual([]);
  });

  it("refuses a job above the number that a key may have running", async () => {
    const service = await startTestService({ providers: [stuck()] });
    for (let i = 0; i < 100; i++) await createInline(service, [line("x")]);
    const body = { batch: { inputConfig: { requests: { requests: [line("x")] } } } };
    const refused = await generate(service, body, { verb: "batchGenerateContent" });
    expect([refused.status, (await errorOf(refused)).status]).toEqual([429, "RESOURCE_EXHAUSTED"]);
  });
});

/** Never makes an image. */
function stuck(): FakeProvider {
  const provider = new FakeProvider();
  provider.answer = (_request, signal) =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  return provider;
}
