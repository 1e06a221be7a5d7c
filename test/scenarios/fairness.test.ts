import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { holdFor, openBatch } from "../../src/domain/batches/lifecycle.ts";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import { ProviderError } from "../../src/domain/ports/image-provider.ts";
import type { Stores } from "../../src/domain/ports/stores.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { FakeJobProvider } from "../support/fake-job-provider.ts";
import { FakeProvider, made, tinyPng } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { items, MODEL, openBeside, otherKey, startTestService } from "../support/service.ts";
import { newItem } from "../support/stores.ts";

/** So many batches of a queue take turns. */
const MOST_IN_TURN = 32;
const OTHER_MODEL = "vendorx-3-pro-image";

/** A provider that waits at its first request until the gate is open; then it makes one image after the other. */
function gatedProvider(options: { name?: string; model?: string; concurrency?: number } = {}) {
  const provider = new FakeProvider({ concurrency: 1, ...options });
  const mayGo = gate();
  const image = tinyPng();
  provider.answer = async (_, signal) => {
    const stopped = new Promise<never>((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
    });
    await Promise.race([mayGo.promise, stopped]);
    return made(await image);
  };
  return { provider, mayGo };
}

const named = (name: string, count: number) =>
  Array.from({ length: count }, (_, i) => ({ prompt: `${name} ${i + 1}` }));
const promptsOf = (provider: FakeProvider) => provider.requests.map((request) => request.prompt);

/** Batches of one image each, as an earlier process left them: accepted, and not started. */
async function leaveQueued(stores: Stores, like: string, count: number): Promise<string[]> {
  return stores.write(async (tx) => {
    const batch = await tx.batches.locked(like);
    if (!batch) throw new Error(`${like} is unknown`);
    const ids: string[] = [];
    for (let i = 0; i < count; i++) {
      const id = randomIds.batchId();
      const queued = { ...batch, id, status: "queued", itemCount: 1, successCount: 0, failCount: 0 } as const;
      await openBatch(tx, queued, 1);
      await holdFor(tx, queued, 1);
      const { imageMicroUsd: priceMicroUsd, holdMicroUsd } = queued.price;
      const item = { customId: "a", prompt: `waiting ${i + 1}`, priceMicroUsd, holdMicroUsd };
      await tx.items.insertMany(id, [newItem(0, item)]);
      ids.push(id);
    }
    return ids;
  });
}

describe("the order of work", () => {
  it("[WORK-3] a batch of one is next but one, although a batch of 200 came first", async () => {
    const { provider, mayGo } = gatedProvider();
    const service = await startTestService({ providers: [provider] });
    const large = await service.submit({ model: MODEL, items: named("large", 200) });
    await expect.poll(() => provider.requests.length).toBe(1);
    const small = await service.submit({ model: MODEL, items: named("small", 1) });
    expect((await service.batch(small.id)).status).toBe("queued");
    mayGo.open();
    await service.until(small.id);
    // One item of the large batch was claimed ahead.
    expect(promptsOf(provider).indexOf("small 1")).toBeLessThanOrEqual(3);
    await service.ask(`/${large.id}/cancel`, { method: "POST" });
  });

  it("a key with many batches does not hold up another key with one", async () => {
    const { provider, mayGo } = gatedProvider();
    const service = await startTestService({ providers: [provider] });
    const { headers } = await otherKey(service);
    const many = [];
    for (let i = 0; i < 12; i++) many.push(await service.submit({ model: MODEL, items: named("many", 3) }));
    const { id } = await service.submit({ model: MODEL, items: named("few", 4) }, headers);
    const { stores } = await openBeside(service.data);
    mayGo.open();
    for (const batch of many) await service.until(batch.id);
    await expect.poll(async () => (await stores.read.batches.byId(id))?.status).toBe("completed");
    const turns = promptsOf(provider).map((prompt) => prompt.split(" ")[0]);
    expect(turns.slice(1, 10).filter((name) => name === "few")).toHaveLength(4);
    await service.expectBooks();
  });

  it("keys take turns with a provider that takes whole batches, too", async () => {
    const upstream = new FakeJobProvider({ concurrency: 1 });
    const mayGo = gate();
    upstream.afterCreate = () => mayGo.promise;
    const service = await startTestService({ providers: [upstream] });
    const { headers } = await otherKey(service);
    for (let i = 0; i < 5; i++) await service.submit({ model: MODEL, items: named("many", 1) });
    await service.submit({ model: MODEL, items: named("few", 1) }, headers);
    mayGo.open();
    await expect.poll(() => upstream.jobs.size).toBe(6);
    const order = [...upstream.jobs.values()].map((job) => job.items[0]?.request.prompt);
    expect(order.indexOf("few 1")).toBeLessThanOrEqual(2);
  });

  it("of many waiting batches few take turns; the others start in their order, each with its first item", async () => {
    const first = await startTestService({ providers: [new FakeProvider()] });
    const { id } = await first.submit({ model: MODEL, items: named("model", 1) });
    await first.until(id);
    await first.close(0);
    const { stores, blobs } = await openBeside(first.data);
    const waiting = await leaveQueued(stores, id, MOST_IN_TURN + 16);

    const { provider, mayGo } = gatedProvider();
    const service = await startTestService({ data: first.data, providers: [provider] });
    const running = async () => (await stores.read.batches.withStatus(["running"])).map((batch) => batch.id);
    // One item is claimed ahead.
    await expect.poll(running).toEqual(waiting.slice(0, 2));
    const late = await service.submit({ model: MODEL, items: named("late", 1) });
    const { headers } = await otherKey(service);
    const other = await service.submit({ model: MODEL, items: named("other", 1) }, headers);
    expect(await service.batch(late.id)).toMatchObject({ status: "queued", queued_behind: waiting.length });

    mayGo.open();
    await expect.poll(async () => (await stores.read.batches.byId(late.id))?.status).toBe("completed");
    const prompts = promptsOf(provider);
    expect(prompts.indexOf("other 1")).toBeLessThanOrEqual(3);
    const own = prompts.filter((prompt) => prompt !== "other 1");
    expect(own).toEqual([...waiting.map((_, i) => `waiting ${i + 1}`), "late 1"]);
    await expect.poll(async () => (await stores.read.batches.byId(other.id))?.status).toBe("completed");
    await expect.poll(async () => (await checkInvariants(stores, blobs)).problems).toEqual([]);
  });

  it("of many batches no more than take turns are begun, until one of them ends", async () => {
    const { provider, mayGo } = gatedProvider({ concurrency: 2 * MOST_IN_TURN });
    const service = await startTestService({ providers: [provider] });
    const ids: string[] = [];
    for (let i = 0; i < MOST_IN_TURN + 2; i++)
      ids.push((await service.submit({ model: MODEL, items: named("a", 2) })).id);
    await expect.poll(() => provider.requests.length).toBe(2 * MOST_IN_TURN);
    const { stores } = await openBeside(service.data);
    const queued = async () => (await stores.read.batches.withStatus(["queued"])).map((batch) => batch.id);
    expect(await queued()).toEqual(ids.slice(MOST_IN_TURN));
    await service.ask(`/${ids[5]}/cancel`, { method: "POST" });
    await expect.poll(queued).toEqual(ids.slice(MOST_IN_TURN + 1));
    mayGo.open();
    await expect.poll(queued).toEqual([]);
  });

  it("a provider that hangs does not hold up another one", async () => {
    const slow = gatedProvider({ name: "slow", model: OTHER_MODEL });
    const quick = new FakeProvider({ name: "quick" });
    const service = await startTestService({ providers: [slow.provider, quick] });
    for (let i = 0; i < 40; i++) await service.submit({ model: OTHER_MODEL, items: named("slow", 1) });
    const { id } = await service.submit({ model: MODEL, items: named("quick", 3) });
    expect(await service.until(id)).toMatchObject({ status: "completed", provider: "quick" });
    expect(slow.provider.requests).toHaveLength(1);
    slow.mayGo.open();
  });

  it("a batch whose provider is not configured any more goes to another one of the same kind, at the old price", async () => {
    const old = gatedProvider({ name: "old" });
    const first = await startTestService({ providers: [old.provider] });
    const { id } = await first.submit({ model: MODEL, items: items(2) });
    await expect.poll(() => old.provider.requests.length).toBe(1);
    await first.close(0);
    const upstream = new FakeJobProvider({ name: "new" });
    const second = await startTestService({ data: first.data, providers: [upstream] });
    expect(await second.until(id)).toMatchObject({
      status: "completed",
      provider: "new",
      actual_cost: 0.067,
    });
    expect(upstream.jobs.size).toBe(1);
  });

  it("a batch that no configured provider can make waits, keeps its hold, and goes on when one can", async () => {
    const old = gatedProvider({ name: "old", model: OTHER_MODEL });
    const first = await startTestService({ providers: [old.provider] });
    const { id } = await first.submit({ model: OTHER_MODEL, items: items(2) });
    await first.close(0);
    const second = await startTestService({
      data: first.data,
      providers: [new FakeProvider({ name: "new", model: MODEL })],
    });
    const waiting = { code: "PROVIDER_NOT_CONFIGURED", until: null };
    await expect.poll(() => second.batch(id)).toMatchObject({ status: "running", waiting });
    await second.expectBooks();
    await second.close(0);
    const heir = new FakeProvider({ name: "heir", model: OTHER_MODEL });
    const third = await startTestService({ data: first.data, providers: [heir] });
    expect(await third.until(id)).toMatchObject({ status: "completed", provider: "heir", waiting: null });
  });
});

describe("the number of requests at once", () => {
  it("[WORK-2] stays within the provider's limit over retries, batches of several keys, and a restart", async () => {
    const clock = new FakeClock();
    const tries = new Map<string, number>();
    const image = await tinyPng();
    const providerOf = () => {
      const provider = new FakeProvider({ concurrency: 3 });
      provider.answer = async ({ prompt }) => {
        await sleep(5);
        const count = (tries.get(prompt) ?? 0) + 1;
        tries.set(prompt, count);
        if (count % 2 === 1) throw new ProviderError("PROVIDER_RATE_LIMITED", "slower");
        return made(image);
      };
      return provider;
    };
    const before = providerOf();
    const first = await startTestService({ providers: [before], clock });
    const { headers } = await otherKey(first);
    const ids: string[] = [];
    for (let i = 0; i < 6; i++) {
      const body = { model: MODEL, items: named(`batch ${i}`, 8) };
      ids.push((await first.submit(body, i % 2 === 0 ? {} : headers)).id);
    }
    const requests = () => {
      clock.advance(1000);
      return before.requests.length;
    };
    await expect.poll(requests).toBeGreaterThan(10);
    await first.close(0);
    const after = providerOf();
    const second = await startTestService({ data: first.data, providers: [after], clock });
    const { stores } = await openBeside(second.data);
    const isDone = async (id: string) => (await stores.read.batches.byId(id))?.status === "completed";
    const allDone = async () => {
      clock.advance(1000);
      for (const id of ids) if (!(await isDone(id))) return false;
      return true;
    };
    await expect.poll(allDone).toBe(true);
    expect([before.maxRunning, after.maxRunning]).toEqual([3, 3]);
    await second.expectBooks();
  });
});
