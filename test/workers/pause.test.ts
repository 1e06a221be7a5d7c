import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { FakeJobProvider } from "../support/fake-job-provider.ts";
import { FakeProvider, made, tinyPng } from "../support/fake-provider.ts";
import { type Gate, gate } from "../support/gate.ts";
import { items, MODEL, startTestService, type TestService } from "../support/service.ts";

/** A provider whose images wait for the test; a gate for each request, in order. */
function heldProvider(): { provider: FakeProvider; gates: Gate<void>[] } {
  const provider = new FakeProvider();
  const gates: Gate<void>[] = [];
  provider.answer = async (_request, signal) => {
    const held = gate();
    gates.push(held);
    signal.addEventListener("abort", () => held.fail(signal.reason));
    await held.promise;
    return made(await tinyPng());
  };
  return { provider, gates };
}

/** Resolves when the workers have had time to begin something. */
async function timeToBegin(service: TestService): Promise<void> {
  const { id } = await service.submit({ model: MODEL, items: items(1) });
  await sleep(100);
  expect(await service.batch(id)).toMatchObject({ status: "queued" });
  await service.ask(`/${id}/cancel`, { method: "POST" });
}

describe("paused workers", () => {
  it("[WORK-10] paused workers finish running work, begin nothing new, and continue when resumed", async () => {
    const { provider, gates } = heldProvider();
    const service = await startTestService({ providers: [provider] });
    const { id } = await service.submit({ model: MODEL, items: items(4) });
    await expect.poll(() => gates).toHaveLength(2);
    await service.setPaused(true);
    expect(service.queue()).toEqual({ running: 2, paid: 0, slots: 2, isPaused: true });
    for (const held of gates) held.open();
    await expect.poll(async () => (await service.batch(id)).success_count).toBe(2);
    await timeToBegin(service);
    expect(provider.requests).toHaveLength(2);
    expect(service.queue().running).toBe(0);
    await service.setPaused(false);
    await expect.poll(() => gates).toHaveLength(4);
    for (const held of gates) held.open();
    expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 4 });
  });

  it("[WORK-10] while workers are paused, batches can be created, read and cancelled, and are made later", async () => {
    const { provider, gates } = heldProvider();
    const service = await startTestService({ providers: [provider] });
    await service.setPaused(true);
    const first = await service.submit({ model: MODEL, items: items(1) });
    const second = await service.submit({ model: MODEL, items: items(1) });
    await timeToBegin(service);
    expect(provider.requests).toHaveLength(0);
    const cancelled = await service.ask(`/${first.id}/cancel`, { method: "POST" });
    expect([cancelled.status, await cancelled.json()]).toMatchObject([200, { status: "cancelled" }]);
    await service.setPaused(false);
    await expect.poll(() => gates).toHaveLength(1);
    gates[0]?.open();
    expect(await service.until(second.id)).toMatchObject({ status: "completed" });
    expect(provider.requests).toHaveLength(1);
  });

  it("[WORK-10] workers are not paused after a restart, and a stop while paused loses nothing", async () => {
    const { provider, gates } = heldProvider();
    const first = await startTestService({ providers: [provider] });
    const { id } = await first.submit({ model: MODEL, items: items(3) });
    await expect.poll(() => gates).toHaveLength(2);
    await first.setPaused(true);
    await first.close(0);
    const second = await startTestService({ data: first.data });
    expect(second.queue().isPaused).toBe(false);
    expect(await second.until(id)).toMatchObject({ status: "completed", success_count: 3 });
  });

  it("[WORK-10] paused workers submit no job to an upstream", async () => {
    const upstream = new FakeJobProvider();
    const service = await startTestService({ providers: [upstream] });
    await service.setPaused(true);
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    await timeToBegin(service);
    expect(upstream.jobs.size).toBe(0);
    await service.setPaused(false);
    expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 2 });
  });
});
