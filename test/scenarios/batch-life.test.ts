import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
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
    const { stores, blobs } = await openBeside(service.data);
    const entries = await stores.read.ledger.list({ batchIds: [created.id] });
    expect(entries.map((e) => [e.kind, e.amountMicroUsd])).toEqual([
      ["hold", 160_800],
      ["capture", 100_500],
      ["release", 60_300],
    ]);
    const account = await stores.read.accounts.byName("default");
    expect(account).toMatchObject({ balanceMicroUsd: 1_000_000_000 - 100_500, heldMicroUsd: 0 });
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
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
    const list = (await (await service.ask(`/${id}/items`)).json()) as { data: unknown[] };
    expect(list.data).toMatchObject([
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
