import { describe, expect, it, onTestFinished } from "vitest";
import { createDashboardSource } from "../../src/cli/dashboard-source.ts";
import { readBatch } from "../../src/client/answers.ts";
import { createServiceHttp } from "../../src/client/service-http.ts";
import type { Fact, Vitals } from "../../src/dashboard/model.ts";
import { ProviderError } from "../../src/domain/ports/image-provider.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { FakeProvider, FakeUpstream, made, madeAfter, tinyPng, troubled } from "../support/fake-provider.ts";
import { FAKE_KEY, startFakeService } from "../support/fake-service.ts";
import { gate } from "../support/gate.ts";
import { items, MODEL, otherKey, startTestService, type TestService } from "../support/service.ts";

type Told<T extends Fact["type"]> = Extract<Fact, { type: T }>;

/** Collects the facts of a source, and stops it after the test. */
function listen(source: ReturnType<typeof createDashboardSource>) {
  const facts: Fact[] = [];
  const stop = source.start((fact) => facts.push(fact));
  onTestFinished(stop);
  const of = <T extends Fact["type"]>(type: T) => facts.filter((fact): fact is Told<T> => fact.type === type);
  return {
    source,
    of,
    stop,
    batches: () => of("batches").flatMap(({ batches }) => batches),
    vitals: (): Partial<Vitals> => Object.assign({}, ...of("vitals").map(({ vitals }) => vitals)),
    messages: () => of("message").map(({ text }) => text),
    images: () => of("images").reduce((sum, { count }) => sum + count, 0),
  };
}

const options = { clock: systemClock, directoryOf: () => null, signal: new AbortController().signal };
const httpTo = (baseUrl: string, apiKey: string) =>
  createServiceHttp({ baseUrl, apiKey, clock: systemClock, random: () => 0.5 });

/** The live view of `serve`. */
async function attach(service: TestService) {
  const { baseUrl, apiKey, ...facts } = await service.openLiveView();
  const own = {
    facts: { ...facts, dataDirectory: service.data },
    signInLink: service.signInLink,
    lines: (tell: (line: Told<"request"> | Told<"log">) => void) =>
      service.feed.subscribe((event) => {
        if (event.type === "request" || event.type === "log") tell(event);
      }),
  };
  const source = createDashboardSource({ ...options, http: httpTo(baseUrl, apiKey), url: service.url, own });
  const seen = listen(source);
  await expect.poll(() => seen.vitals().concurrency).toBeDefined();
  return seen;
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

describe("the live view of serve", () => {
  it("begins with the service and the batches of all keys, and follows what happens", async () => {
    const service = await startTestService({
      providers: [mixedProvider()],
      config: { features: { console: false } },
    });
    const id = await endedBatch(service);
    const { of, batches, images } = await attach(service);
    const { url, data: dataDirectory } = service;
    expect(of("service")[0]?.facts).toMatchObject({ url, dataDirectory, providers: "procedural" });
    expect(batches()[0]).toMatchObject({
      ...{ id, name: "foxes", status: "completed", itemCount: 3, successCount: 1, failCount: 2 },
      ...{ actualCostMicroUsd: 33_500, estimatedCostMicroUsd: 100_500 },
    });
    expect(images()).toBe(0);
    const other = await otherKey(service);
    const { id: theirs } = await service.submit({ model: MODEL, items: items(1) }, other.headers);
    await expect
      .poll(() => batches().at(-1), { timeout: 5000 })
      .toMatchObject({ id: theirs, status: "completed" });
    expect(images()).toBe(1);
    await service.ask(`/${id}`, { method: "DELETE" });
    await expect.poll(() => of("batch-gone"), { timeout: 5000 }).toEqual([{ type: "batch-gone", id }]);
  });

  it("tells money, disk, and what waits and runs, while a batch is made", async () => {
    const provider = new FakeProvider();
    const held = gate();
    provider.answer = madeAfter(held);
    const service = await startTestService({ providers: [provider] });
    const { vitals, batches } = await attach(service);
    await service.submit({ model: MODEL, items: items(5) });
    const isBusy = { waitingItems: 3, runningItems: 2, concurrency: 2, isPaused: false };
    await expect.poll(vitals, { timeout: 5000 }).toMatchObject(isBusy);
    expect(vitals().heldMicroUsd).toBeGreaterThan(0);
    expect((vitals().heldMicroUsd ?? 0) + (vitals().balanceMicroUsd ?? 0)).toBe(1_000_000_000);
    expect(vitals().freeDiskBytes).toBeGreaterThan(0);
    held.open();
    await expect
      .poll(() => batches().at(-1), { timeout: 5000 })
      .toMatchObject({ status: "completed", successCount: 5 });
    const isQuiet = { waitingItems: 0, runningItems: 0, heldMicroUsd: 0 };
    await expect.poll(vitals, { timeout: 5000 }).toMatchObject(isQuiet);
  });

  it("tells which provider cannot be used, until when and why, and which batches wait for it", async () => {
    const upstream = new FakeUpstream("vendor", { modelFor: () => "theirs" });
    upstream.answer = () => Promise.reject(troubled("limited", { retryAfterMs: 90_000 }));
    const config = { models: [{ id: MODEL, prices: { "1K": 0 } }] };
    const service = await startTestService({ providers: [upstream], config });
    const { vitals, batches } = await attach(service);
    await service.submit({ model: MODEL, items: items(1) });
    const message = expect.stringContaining("limited");
    await expect
      .poll(() => vitals().troubles, { timeout: 5000 })
      .toEqual([{ provider: "vendor", model: "theirs", untilMs: expect.any(Number), message }]);
    await expect.poll(() => batches().at(-1)?.waiting, { timeout: 5000 }).toMatchObject({ message });
  });

  it("opens a batch with its history, sizes, costs and errors, and keeps it fresh until it is closed", async () => {
    const logLines: string[] = [];
    const service = await startTestService({ providers: [mixedProvider()], logLines });
    const { source, of } = await attach(service);
    const batchId = await endedBatch(service);
    await expect.poll(() => logLines.join()).toMatch(/i2 failed, SAFETY_BLOCKED: .*“foxes”/);
    await source.perform({ type: "open-detail", batchId });
    const detail = of("detail")[0]?.detail;
    const words = detail?.history?.map(({ status }) => status);
    expect(words).toEqual(["queued", "running", "processing_results", "settling", "completed"]);
    expect(detail?.items).toMatchObject([
      { customId: "i1", status: "success", prompt: "picture 1", error: null, costMicroUsd: 33_500 },
      { customId: "i2", status: "failed", sizeBytes: null, costMicroUsd: null },
      { customId: "i3", status: "failed" },
    ]);
    expect(detail?.items[0]?.sizeBytes).toBeGreaterThan(0);
    expect(detail?.items[1]?.error).toContain("SAFETY_BLOCKED");
    service.feed.publish({ type: "batch", batchId, status: "completed" });
    await expect.poll(() => of("detail").length, { timeout: 5000 }).toBeGreaterThan(1);
    const box = { widthPx: 4, heightPx: 4 };
    await source.perform({ type: "show-picture", batchId, customId: "i1", box });
    const picture = of("picture")[0]?.picture;
    expect(picture).toMatchObject({ widthPx: 4, heightPx: 4, rgb: expect.objectContaining({ length: 48 }) });
    expect(picture?.caption).toMatch(/^8×8 image\/png \d+ B$/);
    await expect(source.perform({ type: "show-picture", batchId, customId: "i2", box })).rejects.toThrow();
    await source.perform({ type: "close-detail" });
  });

  it("cancels, retries and deletes, pauses and resumes, and throws refusals in words", async () => {
    const provider = mixedProvider();
    const service = await startTestService({ providers: [provider] });
    const batchId = await endedBatch(service);
    const { source, messages, batches, of } = await attach(service);
    await source.perform({ type: "retry", batchId });
    expect(messages()).toEqual(["Retrying 1 image, as a new batch “foxes”."]);
    const retried = batches().at(-1)?.id ?? "";
    expect(await service.until(retried)).toMatchObject({ success_count: 1, parent_batch_id: batchId });
    await source.perform({ type: "delete-outputs", batchId });
    expect(batches().at(-1)).toMatchObject({ id: batchId, status: "output_deleted" });
    await source.perform({ type: "delete-record", batchId });
    expect(of("batch-gone")).toEqual([{ type: "batch-gone", id: batchId }]);
    await source.perform({ type: "pause", isPaused: true });
    expect(service.queue().isPaused).toBe(true);
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await expect(source.perform({ type: "delete-outputs", batchId: id })).rejects.toThrow(/ended|not ready/i);
    await expect(source.perform({ type: "retry", batchId: id })).rejects.toThrow("has not ended");
    await source.perform({ type: "cancel", batchId: id });
    expect(messages().at(-1)).toBe("Cancelled. Finished images stay, and are billed unless they are drawn.");
    await source.perform({ type: "pause", isPaused: false });
    expect(service.queue().isPaused).toBe(false);
  });

  it("shows answered requests by the short name of their key, never the key, the query or its own", async () => {
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

  it("has an address of its own that takes no other credential, and a credential that works nowhere else", async () => {
    const service = await startTestService();
    const { baseUrl, apiKey } = await service.openLiveView();
    const statusOf = async (url: string, token: string) =>
      (await fetch(`${url}/v1/images/batches`, { headers: { authorization: `Bearer ${token}` } })).status;
    expect(await statusOf(baseUrl, apiKey)).toBe(200);
    expect(await statusOf(baseUrl, service.credentials.api_key)).toBe(401);
    expect(await statusOf(service.url, apiKey)).toBe(401);
  });
});

/** The live view of `watch`, over a service of another kind whose second item fails. */
async function watchOne(statuses: string[]) {
  const fake = await startFakeService({ failing: /bad/, statuses });
  onTestFinished(() => fake.close());
  const http = httpTo(fake.url, FAKE_KEY);
  const body = {
    model: "m",
    task_name: "foxes",
    items: [
      { custom_id: "a", prompt: "a fox" },
      { custom_id: "b", prompt: "bad" },
    ],
  };
  const { json } = await http.json({
    method: "POST",
    path: "/v1/images/batches",
    body: JSON.stringify(body),
  });
  const batch = readBatch(json);
  if (batch === null) throw new Error("this is no batch");
  const source = createDashboardSource({ ...options, http, url: fake.url, own: null });
  source.show([batch]);
  return { ...listen(source), batch, batchId: batch.id };
}

describe("the live view of watch", () => {
  it("shows each look at a batch, and counts the images that came since", async () => {
    const { source, batch, of, images, batches, vitals } = await watchOne(["running"]);
    expect(of("service")[0]?.facts).toMatchObject({ dataDirectory: null, startedAtMs: null });
    expect(vitals()).toMatchObject({ waitingItems: 2 });
    source.show([{ ...batch, status: "completed", isDone: true, successCount: 1, failCount: 1 }]);
    expect([batches().at(-1)?.status, images(), vitals().waitingItems]).toEqual(["completed", 1, 0]);
    expect(source.abilities).toEqual({ ownsService: false, openConsole: false });
  });

  it("opens a batch and its images, and acts through the service", async () => {
    const { source, batchId, of, batches, messages } = await watchOne(["running"]);
    await source.perform({ type: "open-detail", batchId });
    expect(of("detail")[0]?.detail).toMatchObject({
      history: null,
      items: [
        { customId: "a", status: "success", prompt: "a fox", error: null, sizeBytes: null },
        { customId: "b", status: "failed", error: "PROVIDER_ITEM_FAILED: It did not work." },
      ],
    });
    await source.perform({ type: "show-picture", batchId, customId: "a", box: { widthPx: 6, heightPx: 6 } });
    expect(of("picture")[0]?.picture.caption).toContain("image/png");
    await expect(source.perform({ type: "delete-outputs", batchId })).rejects.toThrow("Not yet.");
    await source.perform({ type: "cancel", batchId });
    expect(batches().at(-1)?.status).toBe("cancelled");
    await source.perform({ type: "open-folder", batchId });
    expect(messages().at(-1)).toBe("The directory of this batch is unknown here.");
  });
});
