import { existsSync } from "node:fs";
import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ProviderError } from "../../src/domain/ports/image-provider.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { FakeProvider, made, madeAfter, tinyPng } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { items, MODEL, openBeside, startTestService } from "../support/service.ts";

describe("the life of a batch", () => {
  it("[LIFE-1] goes through every status, each written to its history in order", async () => {
    const service = await startTestService();
    const { id } = await service.submit({ model: MODEL, items: items(3) });
    await service.until(id);
    const { stores } = await openBeside(service.data);
    const history = (await stores.read.batches.events(id)).map((event) => event.to);
    expect(history).toEqual(["queued", "running", "processing_results", "settling", "completed"]);
  });

  it("[MONEY-4] pays for successes only and gives the rest of the hold back", async () => {
    const provider = new FakeProvider();
    provider.answer = async ({ prompt }) => {
      if (prompt === "picture 2") throw new ProviderError("SAFETY_BLOCKED", "refused");
      return made(await tinyPng());
    };
    const service = await startTestService({ providers: [provider] });
    const created = await service.submit({ model: MODEL, items: items(4) });
    expect(created).toMatchObject({ status: "queued", actual_cost: null, settled_at: null });
    expect(created.estimated_cost).toBe(0.134);
    expect(created.hold_amount).toBe(0.1608);
    const ended = await service.until(created.id);
    expect(ended).toMatchObject({
      status: "completed",
      success_count: 3,
      fail_count: 1,
      actual_cost: 0.1005,
    });
    const { stores } = await openBeside(service.data);
    const entries = await stores.read.ledger.list({ batchIds: [created.id] });
    expect(entries.map((e) => [e.kind, e.amountMicroUsd])).toEqual([
      ["hold", 160_800],
      ["capture", 100_500],
      ["release", 60_300],
    ]);
    const account = await stores.read.accounts.byName("default");
    expect(account).toMatchObject({ balanceMicroUsd: 1_000_000_000 - 100_500, heldMicroUsd: 0 });
    await service.expectBooks();
  });

  it("settles at the prices of the moment of creation, whatever the configuration says later", async () => {
    const held = gate();
    const provider = new FakeProvider();
    provider.answer = madeAfter(held);
    const first = await startTestService({ providers: [provider] });
    const { id } = await first.submit({ model: MODEL, items: items(1) });
    const stopped = first.close(0);
    held.open();
    await stopped;
    const dearer = { models: [{ id: MODEL, prices: { "1K": 50 } }] };
    const second = await startTestService({ data: first.data, config: dearer });
    expect((await second.until(id)).actual_cost).toBe(0.0335);
  });
});

describe("items", () => {
  it("[WORK-1] retries what may pass, at most three times in all, and waits in between", async () => {
    const clock = new FakeClock();
    const provider = new FakeProvider();
    provider.answer = () => Promise.reject(new ProviderError("PROVIDER_TIMEOUT", "too slow"));
    const service = await startTestService({ providers: [provider], clock });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    for (const attempt of [1, 2]) {
      await expect.poll(() => clock.nextWakeInMs).toBe(attempt * 500);
      clock.advance(attempt * 500);
    }
    await service.until(id);
    expect(provider.requests.map((request) => request.attempt)).toEqual([1, 2, 3]);
    expect(await service.items(id)).toMatchObject([
      { status: "failed", error: { code: "PROVIDER_TIMEOUT", message: "too slow", source: "provider" } },
    ]);
  });

  it("[WORK-4] an image that cannot be stored now is stored later, and not made again", async () => {
    const clock = new FakeClock();
    const provider = new FakeProvider();
    const service = await startTestService({ providers: [provider], clock });
    const outputs = join(service.data, "blobs", "outputs");
    await mkdir(join(service.data, "blobs"), { recursive: true });
    await writeFile(outputs, "a file where the folder should be");
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await expect.poll(() => clock.nextWakeInMs).toBe(1000);
    await rm(outputs);
    clock.advance(1000);
    expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 1 });
    expect(provider.requests).toHaveLength(1);
  });

  it("keeps every image that a provider answers, and bills the item once", async () => {
    const provider = new FakeProvider();
    provider.answer = async () => made(await tinyPng(1), await tinyPng(2));
    const service = await startTestService({ providers: [provider] });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    expect((await service.until(id)).actual_cost).toBe(0.0335);
    const first = await service.ask(`/${id}/items/i1/content`);
    const second = await service.ask(`/${id}/items/i1/content?image_index=1`);
    expect(Buffer.from(await first.arrayBuffer())).toEqual(await tinyPng(1));
    expect(Buffer.from(await second.arrayBuffer())).toEqual(await tinyPng(2));
    expect((await service.ask(`/${id}/items/i1/content?image_index=2`)).status).toBe(400);
  });
});

describe("a restart", () => {
  it("a graceful stop parks running items, and the next start makes only what was not made", async () => {
    const provider = new FakeProvider({ concurrency: 1 });
    const third = gate();
    // Beside others, another process may ask for the pictures after the third.
    const areMade = ["picture 1", "picture 2"];
    provider.answer = async ({ prompt }, signal) => {
      if (prompt === "picture 3") third.open();
      if (!areMade.includes(prompt))
        await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      return made(await tinyPng());
    };
    const first = await startTestService({ providers: [provider] });
    const { id } = await first.submit({ model: MODEL, items: items(5) });
    await third.promise;
    await expect.poll(async () => (await first.batch(id)).success_count).toBe(2);
    const asked = provider.requests.length;
    await first.close(0);
    expect(provider.requests).toHaveLength(asked);

    const next = new FakeProvider();
    const second = await startTestService({ data: first.data, providers: [next] });
    expect(await second.until(id)).toMatchObject({ status: "completed", success_count: 5 });
    const prompts = next.requests.map((request) => request.prompt);
    expect(prompts.sort()).toEqual(["picture 3", "picture 4", "picture 5"]);
    expect(next.requests.map(({ attempt }) => attempt)).toEqual([1, 1, 1]);
  });

  it("removes half-written files and images that no row names", async () => {
    const provider = new FakeProvider();
    provider.answer = (_request, signal) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    const first = await startTestService({ providers: [provider] });
    const { id } = await first.submit({ model: MODEL, items: items(1) });
    await expect.poll(() => provider.running).toBe(1);
    await first.close(0);
    const outputs = join(first.data, "blobs", "outputs", id);
    await rm(outputs, { recursive: true, force: true });
    const { blobs } = await openBeside(first.data);
    await blobs.put(`outputs/${id}/7-abc-0`, await tinyPng());
    await writeFile(join(outputs, ".x.partial"), "half");
    const halfKey = join(first.data, ".credentials.json.0123456789ab.partial");
    await writeFile(halfKey, "half");
    await blobs.put("inputs/imgbatch_never_accepted/abc", await tinyPng());

    const second = await startTestService({ data: first.data });
    await second.until(id);
    expect(await readdir(outputs)).toHaveLength(1);
    expect(await blobs.list("inputs/")).toEqual([]);
    expect(existsSync(halfKey)).toBe(false);
  });

  it("removes an image that came to be stored after the images of its batch were deleted", async () => {
    const first = await startTestService();
    const { id } = await first.submit({ model: MODEL, items: items(1) });
    await first.until(id);
    expect((await first.ask(`/${id}/outputs`, { method: "DELETE" })).status).toBe(200);
    await first.close(0);
    const { blobs } = await openBeside(first.data);
    expect(await blobs.list("outputs/")).toEqual([]);
    await blobs.put(`outputs/${id}/7-abc-0`, await tinyPng());
    await startTestService({ data: first.data });
    expect(await blobs.list("outputs/")).toEqual([]);
  });
});
