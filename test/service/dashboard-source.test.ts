import { describe, expect, it, vi } from "vitest";
import type { Fact } from "../../src/dashboard/events.ts";
import type { BatchRow, Vitals } from "../../src/dashboard/model.ts";
import { ProviderError } from "../../src/domain/ports/image-provider.ts";
import { createDashboardSource } from "../../src/service/dashboard-source.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { FakeProvider, made, madeAfter, tinyPng } from "../support/fake-provider.ts";
import { FakeUpstream, troubled } from "../support/fake-upstream.ts";
import { gate } from "../support/gate.ts";
import { items, MODEL, startTestService, type TestService } from "../support/service.ts";

type Told<T extends Fact["type"]> = Extract<Fact, { type: T }>;

/** The source over a service, with all that it has told so far. */
async function attach(service: TestService) {
  const facts: Fact[] = [];
  const source = createDashboardSource(service.view);
  const { flush, stop } = source.start((fact) => facts.push(fact));
  await flush?.();
  const of = <T extends Fact["type"]>(type: T) => facts.filter((fact): fact is Told<T> => fact.type === type);
  return {
    source,
    facts,
    of,
    stop,
    flush: () => flush?.(),
    rows: (): BatchRow[] => of("batches").flatMap(({ rows }) => rows),
    vitals: (): Partial<Vitals> => Object.assign({}, ...of("vitals").map(({ vitals }) => vitals)),
    messages: () => of("message").map(({ text }) => text),
  };
}

/** A provider that refuses `picture 2`, fails `picture 3` in a first batch, and makes the rest. */
function mixedProvider(): FakeProvider {
  const provider = new FakeProvider();
  provider.answer = async ({ prompt, origin }) => {
    if (prompt === "picture 2") throw new ProviderError("SAFETY_BLOCKED", "refused");
    if (prompt === "picture 3" && origin === "batch")
      throw new ProviderError("PROVIDER_ITEM_FAILED", "broken");
    return made(await tinyPng());
  };
  return provider;
}

async function endedBatch(service: TestService, count = 3): Promise<string> {
  const { id } = await service.submit({ model: MODEL, task_name: "foxes", items: items(count) });
  await service.until(id);
  return id;
}

describe("the live view of a service", () => {
  it("begins with the facts of the service and the batches that it has", async () => {
    const service = await startTestService({ providers: [mixedProvider()] });
    const id = await endedBatch(service);
    const { of, rows } = await attach(service);
    expect(of("service")[0]?.facts).toMatchObject({
      url: service.url,
      dataDirectory: service.data,
      providers: "procedural",
    });
    expect(rows()).toEqual([
      expect.objectContaining({
        id,
        name: "foxes",
        status: "completed",
        itemCount: 3,
        successCount: 1,
        failCount: 2,
        costMicroUsd: 33_500,
        estimatedMicroUsd: 100_500,
      }),
    ]);
  });

  it("reads a batch once a frame, however often it changed, and not at all in a quiet frame", async () => {
    const service = await startTestService();
    const id = await endedBatch(service, 1);
    const { flush, of } = await attach(service);
    await flush();
    const byId = vi.spyOn(service.view.stores.read.batches, "byId");
    const before = of("batches").length;
    for (let n = 0; n < 100; n++) {
      service.feed.publish({ type: "item", batchId: id, customId: "i1", status: "success" });
    }
    await flush();
    expect(byId).toHaveBeenCalledTimes(1);
    expect(of("images").at(-1)).toMatchObject({ count: 100 });
    expect(of("batches")).toHaveLength(before + 1);
    await flush();
    expect(byId).toHaveBeenCalledTimes(1);
    expect(of("images")).toHaveLength(1);
  });

  it("does not show a record again that was deleted while it was read", async () => {
    const service = await startTestService();
    const batchId = await endedBatch(service, 1);
    const { flush, rows } = await attach(service);
    const before = rows().length;
    service.feed.publish({ type: "batch", batchId, status: "completed" });
    const reading = flush();
    service.feed.publish({ type: "batch-gone", batchId });
    await reading;
    expect(rows()).toHaveLength(before);
  });

  it("tells money, disk, and what waits and runs, while a batch is made", async () => {
    const provider = new FakeProvider();
    const held = gate();
    provider.answer = madeAfter(held);
    const service = await startTestService({ providers: [provider] });
    const { flush, vitals, rows } = await attach(service);
    const { id } = await service.submit({ model: MODEL, items: items(5) });
    await expect.poll(() => provider.running).toBe(2);
    await flush();
    expect(vitals()).toMatchObject({ waitingItems: 3, runningItems: 2, concurrency: 2, isPaused: false });
    expect(vitals().heldMicroUsd).toBeGreaterThan(0);
    expect((vitals().heldMicroUsd ?? 0) + (vitals().balanceMicroUsd ?? 0)).toBe(1_000_000_000);
    await expect.poll(() => vitals().freeDiskBytes).toBeGreaterThan(0);
    held.open();
    await service.until(id);
    await flush();
    expect(rows().at(-1)).toMatchObject({ id, status: "completed", successCount: 5 });
    expect(vitals()).toMatchObject({ waitingItems: 0, runningItems: 0, heldMicroUsd: 0 });
  });

  it("tells which provider cannot be used, until when and why, and that it is well again", async () => {
    const clock = new FakeClock();
    const upstream = new FakeUpstream("vendor", { modelFor: () => "theirs" });
    upstream.answer = () => Promise.reject(troubled("limited", { retryAfterMs: 90_000 }));
    const config = { models: [{ id: MODEL, prices: { "1K": 0 } }] };
    const service = await startTestService({ providers: [upstream], config, clock });
    const { flush, vitals, of } = await attach(service);
    expect(vitals().troubles).toBeUndefined();
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await expect.poll(async () => (await service.batch(id)).waiting).toBeTruthy();
    const untilMs = clock.nowMs() + 90_000;
    await flush();
    const message = expect.stringContaining("limited");
    expect(vitals().troubles).toEqual([{ provider: "vendor", model: "theirs", untilMs, message }]);
    const told = of("vitals").length;
    await flush();
    expect(of("vitals")).toHaveLength(told);
    upstream.answer = async () => made(await tinyPng());
    const ended = async () => {
      clock.advance(90_000);
      return (await service.batch(id)).status;
    };
    await expect.poll(ended).toBe("completed");
    await flush();
    expect(vitals().troubles).toEqual([]);
  });

  it("tells each image that could not be made among the errors", async () => {
    const service = await startTestService({ providers: [mixedProvider()] });
    const { flush, of } = await attach(service);
    await endedBatch(service);
    await flush();
    const lines = of("log").map(({ line }) => `${line.level} ${line.text}`);
    expect(lines.sort()).toEqual([
      expect.stringContaining("warn i2 failed, SAFETY_BLOCKED: "),
      expect.stringContaining("warn i3 failed, PROVIDER_ITEM_FAILED: "),
    ]);
    await flush();
    expect(of("log")).toHaveLength(2);
  });

  it("opens a batch with its history, sizes, costs and errors, and keeps it fresh until it is closed", async () => {
    const service = await startTestService({ providers: [mixedProvider()] });
    const id = await endedBatch(service);
    const { source, of, flush } = await attach(service);
    await source.perform({ type: "open-detail", batchId: id });
    const detail = of("detail")[0]?.detail;
    expect(detail?.history?.map(({ status }) => status)).toEqual([
      "queued",
      "running",
      "processing_results",
      "settling",
      "completed",
    ]);
    expect(detail?.items).toMatchObject([
      { customId: "i1", status: "success", prompt: "picture 1", error: null, costMicroUsd: 33_500 },
      { customId: "i2", status: "failed", sizeBytes: null, costMicroUsd: null },
      { customId: "i3", status: "failed" },
    ]);
    expect(detail?.items[0]?.sizeBytes).toBeGreaterThan(0);
    expect(detail?.items[1]?.error).toContain("SAFETY_BLOCKED");
    service.feed.publish({ type: "batch", batchId: id, status: "completed" });
    await flush();
    expect(of("detail")).toHaveLength(2);
    await source.perform({ type: "close-detail" });
    service.feed.publish({ type: "batch", batchId: id, status: "completed" });
    await flush();
    expect(of("detail")).toHaveLength(2);
  });

  it("shows an image as pixels that fit the box, and says why it cannot", async () => {
    const service = await startTestService({ providers: [mixedProvider()] });
    const batchId = await endedBatch(service);
    const { source, of } = await attach(service);
    const box = { widthPx: 4, heightPx: 4 };
    await source.perform({ type: "show-picture", batchId, customId: "i1", box });
    const picture = of("picture")[0]?.picture;
    expect(picture).toMatchObject({ widthPx: 4, heightPx: 4 });
    expect(picture?.rgb).toHaveLength(4 * 4 * 3);
    expect(picture?.caption).toMatch(/^8×8 image\/png \d+ B$/);
    const failed = source.perform({ type: "show-picture", batchId, customId: "i2", box });
    await expect(failed).rejects.toThrow("i2 has no image any more.");
  });

  it("cancels, and tells what that means", async () => {
    const provider = new FakeProvider();
    provider.answer = (_request, signal) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    const service = await startTestService({ providers: [provider] });
    const { source, messages, flush, rows } = await attach(service);
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    await source.perform({ type: "cancel", batchId: id });
    expect((await service.batch(id)).status).toBe("cancelled");
    expect(messages()).toEqual(["Cancelled. Finished images stay, and are billed unless they are drawn."]);
    await flush();
    expect(rows().at(-1)).toMatchObject({ id, status: "cancelled" });
  });

  it("retries the failed items that may succeed, as a batch that is made at once", async () => {
    const service = await startTestService({ providers: [mixedProvider()] });
    const batchId = await endedBatch(service);
    const { source, messages, flush, rows } = await attach(service);
    await source.perform({ type: "retry", batchId });
    expect(messages()).toEqual(["Retrying 1 image, as a new batch “foxes”."]);
    await flush();
    const retried = rows().at(-1)?.id ?? "";
    expect(retried).not.toBe(batchId);
    expect(await service.until(retried)).toMatchObject({ success_count: 1, fail_count: 0 });
  });

  it("deletes image files or the record, and shows a deleted record no more", async () => {
    const service = await startTestService();
    const batchId = await endedBatch(service, 1);
    const { source, flush, rows, of } = await attach(service);
    await source.perform({ type: "delete-outputs", batchId });
    await flush();
    expect(rows().at(-1)).toMatchObject({ id: batchId, status: "output_deleted" });
    await source.perform({ type: "delete-record", batchId });
    expect(of("batch-gone")).toEqual([{ type: "batch-gone", id: batchId }]);
    const before = rows().length;
    service.feed.publish({ type: "batch", batchId, status: "output_deleted" });
    await flush();
    expect(rows()).toHaveLength(before);
    expect((await attach(service)).rows()).toEqual([]);
    const other = await endedBatch(service, 1);
    expect((await service.ask(`/${other}`, { method: "DELETE" })).status).toBe(204);
    expect(of("batch-gone").at(-1)?.id).toBe(other);
  });

  it("pauses and resumes the workers, and what cannot be done is thrown in words", async () => {
    const service = await startTestService();
    const { source, vitals } = await attach(service);
    await source.perform({ type: "pause", isPaused: true });
    expect(vitals().isPaused).toBe(true);
    expect(service.view.queue().isPaused).toBe(true);
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await expect(source.perform({ type: "delete-outputs", batchId: id })).rejects.toThrow(/ended|not ready/i);
    await expect(source.perform({ type: "retry", batchId: id })).rejects.toThrow("has not ended");
    await source.perform({ type: "pause", isPaused: false });
    expect(await service.until(id)).toMatchObject({ status: "completed" });
  });

  it("shows answered requests by the short name of their key, never the key or the query", async () => {
    const service = await startTestService();
    const { of, stop } = await attach(service);
    const key = service.credentials.api_key;
    // Commands ask this before each request of theirs.
    await (await fetch(`${service.url}/healthz`)).text();
    await (await service.ask(`?limit=1&key=${key}`)).text();
    await (await service.ask(`/${key}`)).text();
    await (await fetch(`${service.url}/v1/images/batches`)).text();
    await expect.poll(() => of("request")).toHaveLength(3);
    const lines = of("request").map(({ line }) => line);
    expect(lines[0]).toMatchObject({ method: "GET", path: "/v1/images/batches", status: 200 });
    expect(lines.map((line) => line.key)).toEqual([key.slice(0, lines[0]?.key?.length), lines[0]?.key, null]);
    expect(lines[0]?.key?.length).toBeLessThanOrEqual(12);
    expect(JSON.stringify(lines)).not.toContain(key);
    stop();
    await (await service.ask("?limit=1")).text();
    expect(of("request")).toHaveLength(3);
  });
});

it("shows that a batch waits, and that it no longer does, without news in the feed", async () => {
  const opened = gate();
  const provider = new FakeProvider();
  provider.answer = madeAfter(opened);
  const service = await startTestService({ providers: [provider] });
  const { id } = await service.submit({ model: MODEL, items: items(1) });
  await service.until(id, "running");
  const { rows, flush } = await attach(service);
  const waitingOf = vi.spyOn(service.view, "waitingOf");
  const waiting = {
    code: "PROVIDER_FAILING" as const,
    message: "google: The upstream failed.",
    untilMs: null,
  };
  waitingOf.mockReturnValue(waiting);
  await flush();
  expect(rows().at(-1)).toMatchObject({ id, waiting: "waiting for google: The upstream failed" });
  const before = rows().length;
  await flush();
  expect(rows()).toHaveLength(before);
  waitingOf.mockReturnValue(null);
  await flush();
  expect(rows().at(-1)).toMatchObject({ id, waiting: null });
  opened.open();
  await service.until(id);
});
