import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { startBatch } from "../../../src/domain/batches/lifecycle.ts";
import { identityOf } from "../../../src/domain/models.ts";
import type { Stores } from "../../../src/domain/ports/stores.ts";
import { ItemPool } from "../../../src/workers/items/item-pool.ts";
import { Cluster } from "../../../src/workers/presence.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import {
  FakeProvider,
  FakeUpstream,
  made,
  tinyPng,
  troubled,
  upstreamInTurns,
} from "../../support/fake-provider.ts";
import { type Gate, gate } from "../../support/gate.ts";
import { openBeside } from "../../support/service.ts";
import { newItem, openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { workerDepsOf } from "../../support/worker-deps.ts";

/** The stores, with a count of the claims. */
function counting(stores: Stores) {
  const counts = { claims: 0 };
  const write: Stores["write"] = (work) =>
    stores.write((tx) => {
      const claim: typeof tx.items.claim = (...args) => {
        counts.claims++;
        return tx.items.claim(...args);
      };
      return work({ ...tx, items: { ...tx.items, claim } });
    });
  return { counts, stores: { ...stores, write } };
}

/** Whether a transaction has claimed items. */
const hasItems = (result: unknown) =>
  result !== null &&
  typeof result === "object" &&
  "claimed" in result &&
  (result.claimed as Map<unknown, unknown>).size > 0;

async function poolOf(
  itemCount: number,
  concurrency: number,
  {
    providers = [new FakeProvider({ concurrency })],
    write,
    isAlone = true,
    dueInMs = 0,
    searchMs = 0,
  }: {
    providers?: FakeProvider[];
    write?: (write: Stores["write"]) => Stores["write"];
    isAlone?: boolean;
    /** When the items are due, and how long a search for due ones takes. */
    dueInMs?: number;
    searchMs?: number;
  } = {},
) {
  const { stores: real, blobs } = await openBeside(await tempDir());
  const { stores: counted, counts } = counting(real);
  const clock = new FakeClock();
  const nextOf: Stores["read"]["batches"]["nextOf"] = async (...search) => {
    const found = await real.read.batches.nextOf(...search);
    clock.advance(searchMs);
    return found;
  };
  const read = { ...real.read, batches: { ...real.read.batches, nextOf } };
  const stores = { ...counted, read, write: write?.(counted.write) ?? counted.write };
  const [provider] = providers as [FakeProvider];
  const upstream = identityOf(provider);
  const batch = await openBatchRecord(real, itemCount, { upstream, provider: provider.name });
  await real.write((tx) =>
    tx.items.insertMany(
      batch.id,
      Array.from({ length: itemCount }, (_, position) => {
        const notBeforeMs = dueInMs === 0 ? 0 : clock.nowMs() + dueInMs;
        return newItem(position, { notBeforeMs });
      }),
    ),
  );
  await startBatch(real, batch.id, 1);
  const gates: Gate<void>[] = [];
  provider.answer = async () => {
    const held = gate();
    gates.push(held);
    await held.promise;
    return made(await tinyPng());
  };
  const idle = gate<string>();
  const deps = await workerDepsOf({ stores, blobs, clock, providers, isAlone });
  const { presence, health } = deps;
  const now = { isPaused: false, isHeld: false };
  const isDone = async (batchId: string) => {
    if ((await real.read.items.countByStatus(batchId)).pending === 0) idle.open(batchId);
  };
  const pool = new ItemPool(deps, {
    onBatchIdle: (batchId) => void isDone(batchId),
    mayBegin: (id) => !now.isPaused && !(id === batch.id && now.isHeld) && presence.isFresh,
  });
  const set = (change: Partial<typeof now>) => {
    Object.assign(now, change);
    pool.wake();
  };
  const stop = (graceMs: number, isAbandoned = false) => {
    set({ isPaused: true });
    return pool.stop(graceMs, isAbandoned);
  };
  const countOf = (status: "success" | "pending") => async () =>
    (await real.read.items.countByStatus(batch.id))[status];
  const leased = async () => (await real.read.items.leasesOf(presence.id)).length;
  const marks = async () =>
    (await real.read.items.page(batch.id, { afterPosition: -1, limit: itemCount })).map(
      ({ maybePaid }) => maybePaid,
    );
  return {
    ...{ marks, pool, batch, set, stop, provider, presence, health, gates, clock, counts, idle, leased },
    counted: countOf,
  };
}

/** A pool that has made two images of eight, and makes the next two. Two more items may be claimed ahead. */
async function poolInPace(providers: FakeProvider[]) {
  const tools = await poolOf(8, 2, { providers });
  const { pool, gates, counted } = tools;
  pool.wake();
  await expect.poll(() => gates.length).toBe(2);
  for (const held of gates) held.open();
  await expect.poll(counted("success")).toBe(2);
  await expect.poll(() => gates.length).toBe(4);
  return tools;
}

type PoolInPace = Awaited<ReturnType<typeof poolInPace>>;

it("[HEALTH-6] a stop that abandons requests marks the items that were sent to a paid upstream, and no others", async () => {
  const provider = new FakeUpstream("one", { concurrency: 1 });
  const { pool, stop, clock, marks } = await poolOf(2, 1, { providers: [provider] });
  provider.answer = (_, signal) =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  pool.wake();
  await expect.poll(() => provider.requests.length).toBe(1);
  let isStopped = false;
  void stop(1, true).then(() => {
    isStopped = true;
  });
  const stopsInTime = () => {
    clock.advance(1);
    return isStopped;
  };
  await expect.poll(stopsInTime).toBe(true);
  expect(await marks()).toEqual(["once", "no"]);
});

it("a batch that would begin a pause during a stop sets no timer, which would hold up the end of the process", async () => {
  const provider = new FakeUpstream("one");
  const written = gate<void>();
  const asked = gate<void>();
  let isHeld = false;
  const { pool, batch, health, clock } = await poolOf(1, 1, {
    providers: [provider],
    write: (write) => async (work) => {
      if (isHeld) {
        asked.open();
        await written.promise;
      }
      return write(work);
    },
  });
  await health.begin(provider, batch.model)?.failed(troubled("forbidden"), "1");
  expect(clock.sleeperCount).toBe(0);
  isHeld = true;
  pool.wake();
  await asked.promise;
  const stopped = pool.stop(0);
  written.open();
  await stopped;
  expect(clock.sleeperCount).toBe(0);
});

it("an item that is just being claimed for one provider stays leased when another one finds no item", async () => {
  const answer = gate<void>();
  let isHeld = false;
  const providers = [new FakeUpstream("one"), new FakeUpstream("two")];
  const { pool, batch, provider, gates, counts, idle, counted } = await poolOf(1, 2, {
    providers,
    // The first claim is stored, and its answer is on its way.
    write: (write) => async (work) => {
      const result = await write(work);
      if (isHeld || !hasItems(result)) return result;
      isHeld = true;
      await answer.promise;
      return result;
    },
  });
  pool.wake();
  await expect.poll(() => counts.claims).toBeGreaterThan(1);
  await sleep(50);
  answer.open();
  await expect.poll(() => gates.length).toBe(1);
  gates[0]?.open();
  expect(await idle.promise).toBe(batch.id);
  expect(await counted("success")()).toBe(1);
  expect(provider.requests.length + (providers[1]?.requests.length ?? 0)).toBe(1);
});

it("an item that was claimed by a transaction of which the end is unknown is claimed again", async () => {
  let isLost = false;
  const { pool, batch, gates, clock, idle } = await poolOf(1, 2, {
    write: (write) => async (work) => {
      const result = await write(work);
      if (isLost || !hasItems(result)) return result;
      isLost = true;
      throw new Error("the connection was lost");
    },
  });
  pool.wake();
  await expect
    .poll(() => {
      clock.advance(1000);
      return gates.length;
    })
    .toBe(1);
  gates[0]?.open();
  expect(await idle.promise).toBe(batch.id);
});

it("items are claimed ahead of free slots, never sent before there is one, and all are made", async () => {
  const { pool, batch, provider, gates, idle, leased } = await poolInPace([new FakeProvider()]);
  await expect.poll(leased).toBe(4);
  expect([gates.length, pool.load.running]).toEqual([4, 2]);
  for (let at = 2; at < 8; at++) {
    await expect.poll(() => gates.length).toBeGreaterThan(at);
    gates[at]?.open();
  }
  expect(await idle.promise).toBe(batch.id);
  expect(provider.maxRunning).toBe(2);
  expect(provider.requests.map(({ prompt }) => prompt)).toHaveLength(8);
});

it.each<[string, (tools: PoolInPace) => void, number]>([
  ["the workers are paused", ({ set }) => set({ isPaused: true }), 2],
  ["their batch is about to be cancelled", ({ set }) => set({ isHeld: true }), 2],
  ["the service stops", ({ stop }) => void stop(60_000), 2],
  ["the provider pauses", ({ gates }) => gates[2]?.fail(troubled("limited", { retryAfterMs: 60_000 })), 1],
])("items that were claimed ahead are given back at once when %s", async (_, happen, left) => {
  const tools = await poolInPace([new FakeUpstream("free", { isFree: true })]);
  const { stop, gates, leased, provider } = tools;
  await expect.poll(leased).toBe(4);
  happen(tools);
  await expect.poll(leased).toBe(left);
  expect([gates.length, provider.requests.length]).toEqual([4, 4]);
  for (const held of gates) held.open();
  await stop(60_000);
  expect(await leased()).toBe(0);
});

it("items whose claim was on its way when their batch was held are given back, and made when it goes on", async () => {
  const claimed = gate();
  const { pool, batch, set, gates, idle, leased } = await poolOf(2, 2, {
    write: (write) => async (work) => {
      const result = await write(work);
      if (hasItems(result)) claimed.open();
      return result;
    },
  });
  pool.wake();
  await claimed.promise;
  set({ isHeld: true });
  await expect.poll(leased).toBe(0);
  expect(gates).toEqual([]);
  set({ isHeld: false });
  await expect.poll(() => gates.length).toBe(2);
  for (const held of gates) held.open();
  expect(await idle.promise).toBe(batch.id);
});

it("what waits to be sent is given back when others may take this process for dead at any moment", async () => {
  const { upstream, turns } = upstreamInTurns("vendor");
  const tools = await poolOf(2, 2, { providers: [upstream], isAlone: false });
  const { pool, presence, clock, gates, leased, counted } = tools;
  pool.wake();
  await expect.poll(() => turns.length).toBe(2);
  turns[0]?.open();
  await expect.poll(() => gates.length).toBe(1);
  clock.advance(5000);
  turns[1]?.open();
  await expect.poll(leased).toBe(1);
  await pool.poll();
  expect([upstream.requests.length, turns.length]).toEqual([1, 2]);
  if (presence instanceof Cluster) await presence.heartbeat();
  await pool.poll();
  await expect.poll(() => turns.length).toBe(3);
  turns[2]?.open();
  await expect.poll(() => gates.length).toBe(2);
  for (const { open } of gates) open();
  await expect.poll(counted("success")).toBe(2);
});

it("an item that becomes due while due ones are searched for is made", async () => {
  const { pool, gates, clock, stop } = await poolOf(1, 1, { dueInMs: 50, searchMs: 100 });
  pool.wake();
  await expect.poll(() => clock.sleeperCount).toBe(1);
  clock.advance(0);
  await expect.poll(() => gates.length).toBe(1);
  gates[0]?.open();
  await stop(0);
});
