import { expect, it } from "vitest";
import { LOCAL_STORAGE } from "../../../src/config/storage-places.ts";
import { groupFinishes } from "../../../src/domain/batches/finish-item.ts";
import { startBatch } from "../../../src/domain/batches/lifecycle.ts";
import { ProviderHealth } from "../../../src/domain/health/provider-health.ts";
import { waitingFor } from "../../../src/domain/health/waiting.ts";
import { type Asked, askInTurn } from "../../../src/domain/images/ask-in-turn.ts";
import { readOutput } from "../../../src/domain/images/output-images.ts";
import {
  type GeneratedImages,
  type ItemProvider,
  ProviderError,
} from "../../../src/domain/ports/image-provider.ts";
import type { Stores } from "../../../src/domain/ports/stores.ts";
import type { BatchRecord, LeasedItem } from "../../../src/domain/records.ts";
import { Decoding } from "../../../src/imaging/decoding.ts";
import { sharpInspector } from "../../../src/imaging/sharp-images.ts";
import { randomIds } from "../../../src/kernel/ids.ts";
import { silentLog } from "../../../src/kernel/log.ts";
import { openStorage } from "../../../src/service/storage/open-storage.ts";
import { workOfAll } from "../../../src/service/workers-part.ts";
import type { WorkerDeps } from "../../../src/workers/deps.ts";
import { noteWait } from "../../../src/workers/items/item-pool.ts";
import { recordItem } from "../../../src/workers/items/make-item.ts";
import { Alone, Cluster, TERM_MS } from "../../../src/workers/presence.ts";
import { onEachDialect } from "../../support/dialects.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeUpstream, made, tinyPng, troubled } from "../../support/fake-provider.ts";
import { openBeside } from "../../support/service.ts";
import { newItem, openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

type Of = ConstructorParameters<typeof Cluster>;

const HOUR_MS = 3_600_000;
const OUTAGE_MS = 2 * HOUR_MS;

/** A worker among others, with its own copy of the batch, its own provider and its own health of it. */
async function workerOf(stores: Stores, batch: BatchRecord, clock: FakeClock) {
  const { blobs } = await openBeside(await tempDir());
  const provider = new FakeUpstream("vendor");
  const presence = new Cluster(
    { stores, clock, ids: randomIds, log: silentLog },
    { role: "worker", version: "1", providers: ["vendor"] },
  );
  await presence.join();
  const health = new ProviderHealth({ clock, log: silentLog }, [provider]);
  const deps = {
    ...{ stores, blobs, clock, health, presence, outageMs: OUTAGE_MS, random: () => 0.5, log: silentLog },
    inspector: sharpInspector(new Decoding()),
    finishes: groupFinishes(stores),
  } as unknown as WorkerDeps;
  const own: BatchRecord = { ...batch, status: "running" };
  const offer = { provider: provider as ItemProvider, executedModel: "m", priceMicroUsd: null } as never;
  const claim = async () => {
    const [item] = await stores.write((tx) =>
      tx.items.claim(batch.id, {
        ...{ token: randomIds.leaseToken(), worker: presence.id, nowMs: Number.MAX_SAFE_INTEGER },
        ...{ provider: "vendor", upstream: "u", isPaid: true },
        ...{ which: "any", mostSwitches: 2, limit: 1 },
      }),
    );
    return item as LeasedItem;
  };
  const record = async (item: LeasedItem, outcome: GeneratedImages | ProviderError) => {
    const permit = { isProbe: false, succeeded: () => {}, failed: () => {}, dropped: () => {} };
    const controller = new AbortController();
    const facts = { state: "answered", isSent: true, hasOther: false, bytes: 0 } as const;
    const request = { ...facts, batch: own, item, offer, permit, controller };
    const asked = await askInTurn(deps, [request], {
      id: String(item.id),
      signal: controller.signal,
      ask: async () => (outcome instanceof ProviderError ? Promise.reject(outcome) : outcome),
      read: (_, output) => readOutput(output, deps.inspector, provider),
      isSent: () => true,
      hasTask: () => false,
    });
    return recordItem(deps, request, asked as Asked);
  };
  let isNew = true;
  return {
    presence,
    claim,
    record,
    refused: async () => record(await claim(), troubled("unreachable")),
    makes: async () => record(await claim(), made(await tinyPng())),
    disable: () => health.begin(provider, "m")?.failed(troubled("credential"), "1"),
    wait: async () => {
      const waiting = waitingFor([health.blockOf(provider, "m")]);
      if (waiting === null) throw new Error("the provider may be asked");
      const againMs = await noteWait(deps, own, { waiting, isNew, isIdle: true });
      isNew = false;
      return againMs;
    },
  };
}

onEachDialect("an outage that not all workers have", (open) => {
  async function twoWorkers() {
    const stores = await open();
    const clock = new FakeClock();
    const batch = await openBatchRecord(stores, 5);
    const items = Array.from({ length: 5 }, (_, position) => newItem(position));
    await stores.write((tx) => tx.items.insertMany(batch.id, items));
    await startBatch(stores, batch.id, 1);
    const [broken, well] = [await workerOf(stores, batch, clock), await workerOf(stores, batch, clock)];
    const waitingSinceMs = async () => (await stores.read.batches.byId(batch.id))?.waitingSinceMs;
    const counts = async () => {
      const { pending, success, failed } = await stores.read.items.countByStatus(batch.id);
      return { pending, success, failed };
    };
    return { stores, clock, batch, broken, well, waitingSinceMs, counts };
  }

  it("an image of one ends the outage of another, which then fails no item", async () => {
    const { clock, broken, well, waitingSinceMs, counts } = await twoWorkers();
    const beginMs = clock.nowMs();
    expect(await broken.refused()).toBe("retry");
    expect(await waitingSinceMs()).toBe(beginMs);
    clock.advance(OUTAGE_MS - 1);
    expect(await well.makes()).toBe("success");
    expect(await waitingSinceMs()).toBeNull();
    clock.advance(HOUR_MS);
    expect(await broken.refused()).toBe("retry");
    await broken.disable();
    expect(await broken.wait()).toBe(beginMs + OUTAGE_MS - 1 + HOUR_MS + OUTAGE_MS);
    clock.advance(OUTAGE_MS - 1);
    expect(await well.makes()).toBe("success");
    clock.advance(1);
    expect(await broken.wait()).toBe(clock.nowMs() + OUTAGE_MS);
    expect(await counts()).toEqual({ pending: 3, success: 2, failed: 0 });
  });

  it("all processes show why the batch waits, until the next try or the next image", async () => {
    const { stores, clock, batch, broken, well } = await twoWorkers();
    const upstream = { offers: { forBatch: () => [{}] }, health: { blockOf: () => null } };
    const deps = {
      ...upstream,
      stores,
      clock,
      providers: [],
      goingOn: { includes: () => true },
    } as unknown as WorkerDeps;
    const { waitingOf } = workOfAll(deps, () => false);
    const shown = async () => waitingOf((await stores.read.batches.byId(batch.id)) ?? batch);
    expect(await shown()).toBeNull();
    await broken.refused();
    const untilMs = clock.nowMs() + 7500;
    expect(await shown()).toMatchObject({ code: "PROVIDER_UNREACHABLE", untilMs });
    clock.advance(7500);
    expect(await shown()).toBeNull();
    await broken.refused();
    expect(await shown()).toMatchObject({ untilMs: untilMs + 7500 });
    await well.makes();
    expect(await shown()).toBeNull();
  });

  it("as long as another worker is making an image, no item fails", async () => {
    const { stores, clock, broken, well, counts } = await twoWorkers();
    await broken.disable();
    await broken.wait();
    clock.advance(OUTAGE_MS);
    const item = await well.claim();
    expect(await broken.wait()).toBe(clock.nowMs());
    expect(await broken.refused()).toBe("retry");
    expect(await counts()).toEqual({ pending: 5, success: 0, failed: 0 });
    expect(await well.record(item, made(await tinyPng()))).toBe("success");
    const last = await well.claim();
    await broken.wait();
    clock.advance(OUTAGE_MS);
    await stores.write((tx) => tx.workers.remove(well.presence.id));
    expect(await broken.wait()).toBeNull();
    expect(await counts()).toEqual({ pending: 0, success: 1, failed: 4 });
    expect(await well.record(last, made(await tinyPng()))).toBe("lost");
  });
});

it("a time in which no process made images is no outage", async () => {
  const clock = new FakeClock();
  const { stores } = await openStorage(LOCAL_STORAGE, { directory: await tempDir(), clock });
  const batch = await openBatchRecord(stores, 1);
  await startBatch(stores, batch.id, 1);
  const joined = async <P extends Alone | Cluster>(role: "api" | "worker", Kind: new (...of: Of) => P) => {
    const facts = { role, version: "1", providers: [] };
    const presence = new Kind({ stores, clock, ids: randomIds, log: silentLog }, facts);
    await presence.join();
    return presence;
  };
  const wait = () => stores.write((tx) => tx.batches.update(batch.id, { waitingSinceMs: clock.nowMs() }));
  const isWaiting = async () => (await stores.read.batches.byId(batch.id))?.waitingSinceMs !== null;
  const first = await joined("worker", Cluster);
  await wait();
  clock.advance(TERM_MS);
  await joined("worker", Cluster);
  await first.heartbeat();
  expect(await isWaiting()).toBe(true);
  clock.advance(TERM_MS + 1);
  const api = await joined("api", Cluster);
  await api.heartbeat();
  expect(await isWaiting()).toBe(true);
  await first.heartbeat();
  expect(await isWaiting()).toBe(false);
  await wait();
  clock.advance(TERM_MS + 1);
  await joined("worker", Cluster);
  expect(await isWaiting()).toBe(false);
  await wait();
  await stores.write((tx) => tx.workers.removeAll());
  await joined("worker", Cluster);
  expect(await isWaiting()).toBe(false);
  await wait();
  await joined("worker", Alone);
  expect(await isWaiting()).toBe(false);
});
