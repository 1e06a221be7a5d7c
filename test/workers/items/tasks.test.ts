import { expect, it } from "vitest";
import { startBatch } from "../../../src/domain/batches/lifecycle.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import type { WorkerDeps } from "../../../src/workers/deps.ts";
import { releaseLeases } from "../../../src/workers/scheduler.ts";
import { onEachDialect } from "../../support/dialects.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeUpstream, made, tinyPng, troubled } from "../../support/fake-provider.ts";
import { content, generate } from "../../support/realtime.ts";
import { items, MODEL, startTestService } from "../../support/service.ts";
import { newItem, openBatchRecord } from "../../support/stores.ts";

onEachDialect("the task of an item", (open) => {
  it("[TASK-1] is taken over from a dead worker without a mark, by a provider with the same upstream only", async () => {
    const stores = await open();
    const { id } = await openBatchRecord(stores, 2, { upstream: "task https://a" });
    const newItems = [newItem(0), newItem(1)];
    await stores.write((tx) => tx.items.insertMany(id, newItems));
    await startBatch(stores, id, 1);
    const claim = (token: string, provider: string, upstream: string) => {
      const facts = { token, worker: "w", nowMs: 10, provider, upstream, isPaid: true };
      return stores.write((tx) =>
        tx.items.claim(id, { ...facts, which: "not-failed-here", mostSwitches: 2, limit: 2 }),
      );
    };
    const [known, unknown] = await claim("t", "p", "task https://a");
    const kept = { task: "task 1", upstream: "task https://a" };
    const keep = (token: string) => stores.write((tx) => tx.items.keepTask(known?.id ?? 0, token, kept));
    expect([await keep("another"), await keep("t")]).toEqual([{ isOurs: false }, { isOurs: true }]);
    await releaseLeases({ stores, providers: [], clock: new FakeClock() } as unknown as WorkerDeps);
    expect(await claim("u", "other", "task https://b")).toMatchObject([
      { id: unknown?.id, task: null, maybePaid: "twice" },
    ]);
    expect(await claim("v", "renamed", "task https://a")).toMatchObject([
      { id: known?.id, task: "task 1", maybePaid: "no" },
    ]);
  });
});

/** An upstream that has begun a task, and a second that could take over. `shown`: what comes of asking for the task, in turn. */
async function twoUpstreams(shown: ("trouble" | "image" | "lost")[], outageHours = 24) {
  const [first, second] = [new FakeUpstream("first"), new FakeUpstream("second")];
  const known: (string | null | undefined)[] = [];
  first.answer = async ({ task }) => {
    known.push(task?.known);
    if (task?.known === null) await task.keep("task 1");
    const next = shown.shift();
    if (next === "image") return made(await tinyPng());
    if (next === "trouble") throw troubled("failing");
    throw new ProviderError("RESULT_MISSING", "It is billed.", { trouble: "ambiguous", retryable: false });
  };
  const service = await startTestService({
    providers: [first, second],
    config: { models: [{ id: MODEL, prices: { "1K": 0 } }], limits: { outageHours } },
  });
  return { service, known, second };
}

it("[TASK-1] an item waits for its task while its upstream has trouble, and goes to no other", async () => {
  const { service, known, second } = await twoUpstreams(["trouble", "image"]);
  const { id } = await service.submit({ model: MODEL, items: items(1) });
  await expect.poll(async () => (await service.batch(id)).status, { timeout: 20_000 }).toBe("completed");
  expect(await service.batch(id)).toMatchObject({ success_count: 1 });
  expect([known, second.requests]).toEqual([[null, "task 1"], []]);
});

it("[TASK-3] an item whose task is lost has failed, and nothing more is asked for", async () => {
  const { service, known, second } = await twoUpstreams(["lost"]);
  const { id } = await service.submit({ model: MODEL, items: items(1) });
  await expect.poll(async () => (await service.batch(id)).status).toBe("completed");
  expect(await service.batch(id)).toMatchObject({ fail_count: 1, actual_cost: 0 });
  expect([known, second.requests]).toEqual([[null], []]);
});

it("[TASK-3] an item whose task cannot be asked for, for as long as an outage may last, fails with what it may cost", async () => {
  const { service, known } = await twoUpstreams(["trouble"], 0);
  const { id } = await service.submit({ model: MODEL, items: items(1) });
  await expect.poll(async () => (await service.batch(id)).status).toBe("completed");
  const [item] = await service.items(id);
  expect(item?.error?.message).toContain("may be billed");
  expect(known).toEqual([null]);
});

it("[TASK-1] [TASK-3] a repeated request in real time asks for its task until that has ended, and is answered with its end", async () => {
  const { service, known, second } = await twoUpstreams(["trouble", "trouble", "lost", "image"]);
  const ask = () => generate(service, content("x"), { headers: { "idempotency-key": "k" } });
  const seen = [];
  for (let round = 0; round < 4; round++) {
    const { status, headers } = await ask();
    seen.push([status, headers.get("idempotency-replayed"), headers.get("x-imgbatch-may-be-paid-twice")]);
  }
  expect(seen).toEqual([
    [502, null, null],
    [502, null, null],
    [500, "false", null],
    [500, "true", null],
  ]);
  expect([known, second.requests]).toEqual([[null, "task 1", "task 1"], []]);
});
