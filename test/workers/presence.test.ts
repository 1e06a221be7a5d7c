import { describe, expect, it } from "vitest";
import { LOCAL_STORAGE } from "../../src/config/storage-places.ts";
import { StorageUnavailable } from "../../src/domain/ports/blob-store.ts";
import type { Stores } from "../../src/domain/ports/stores.ts";
import { openHold } from "../../src/domain/realtime/holds.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { openStorage } from "../../src/service/storage/open-storage.ts";
import { Alone, Cluster, HEARTBEAT_MS, TERM_MS } from "../../src/workers/presence.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { type Gate, gate } from "../support/gate.ts";
import { openKey } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

async function openTimed(): Promise<{ stores: Stores; clock: FakeClock }> {
  const clock = new FakeClock();
  const { stores } = await openStorage(LOCAL_STORAGE, { directory: await tempDir(), clock });
  return { stores, clock };
}

function presenceOf(
  { stores, clock }: { stores: Stores; clock: FakeClock },
  facts: { role?: "all" | "api"; providers?: string[] } = {},
) {
  const events: string[] = [];
  const { role = "all", providers = ["p"] } = facts;
  const presence = new Cluster(
    { stores, clock, ids: randomIds, log: silentLog },
    { role, version: "1", providers },
  );
  presence.follow({
    poll: async ({ areSomeGone }) => {
      events.push(areSomeGone ? "some gone" : "look");
    },
    reset: () => events.push("let go"),
    setPaused: (isPaused) => isPaused && events.push("paused"),
  });
  return { presence, events };
}

/** Both beat, as long as the time takes. */
async function beatFor(ms: number, clock: FakeClock, presences: readonly Cluster[]): Promise<void> {
  for (let passedMs = 0; passedMs < ms; passedMs += HEARTBEAT_MS) {
    clock.advance(HEARTBEAT_MS);
    for (const presence of presences) {
      await presence.heartbeat();
      await presence.poll();
    }
  }
}

describe("a process among others", () => {
  it("is removed when it is silent, and begins anew under another id", async () => {
    const timed = await openTimed();
    const [alive, silent] = [presenceOf(timed), presenceOf(timed, { providers: ["q"] })];
    await silent.presence.join();
    await alive.presence.join();
    expect(alive.presence.isOurs("q")).toBe(false);
    const before = silent.presence.id;
    await beatFor(TERM_MS - HEARTBEAT_MS, timed.clock, [alive.presence]);
    expect(alive.events).not.toContain("some gone");
    expect(silent.presence.isFresh).toBe(false);
    await beatFor(2 * HEARTBEAT_MS, timed.clock, [alive.presence]);
    expect(alive.events).toContain("some gone");
    expect(alive.presence.isOurs("q")).toBe(true);
    await silent.presence.heartbeat();
    expect(silent.events).toEqual(["let go"]);
    expect(silent.presence.id).not.toBe(before);
    expect(silent.presence.isFresh).toBe(true);
    const ids = (await timed.stores.read.workers.list()).map(({ id }) => id);
    expect(ids.sort()).toEqual([alive.presence.id, silent.presence.id].sort());
  });

  it("gives back the holds of one that died, and keeps those of the living", async () => {
    const timed = await openTimed();
    const { stores, clock } = timed;
    const [alive, dead] = [presenceOf(timed).presence, presenceOf(timed, { role: "api" }).presence];
    await alive.join();
    await dead.join();
    const { id: apiKeyId, accountId } = await openKey(stores, { balanceMicroUsd: 10, clock });
    for (const worker of [alive.id, dead.id]) {
      const hold = { id: `gen_${worker}`, apiKeyId, accountId, amountMicroUsd: 4, createdAtMs: 1, worker };
      await openHold(stores, hold);
    }
    await beatFor(TERM_MS - HEARTBEAT_MS, clock, [alive]);
    expect(await stores.read.realtimeHolds.list()).toHaveLength(2);
    await beatFor(2 * HEARTBEAT_MS, clock, [alive]);
    expect((await stores.read.realtimeHolds.list()).map(({ worker }) => worker)).toEqual([alive.id]);
    expect(await stores.read.accounts.byId(accountId)).toMatchObject({ balanceMicroUsd: 6, heldMicroUsd: 4 });
  });

  it("starts when others hold up the database for a while, and not when they do so for ever", async () => {
    const { stores, clock } = await openTimed();
    let left = 2;
    const write: Stores["write"] = async (work) => {
      if (left-- <= 0) return stores.write(work);
      clock.advance(10_000);
      throw new StorageUnavailable("busy", "The database is busy.", null);
    };
    const held = { stores: { ...stores, write }, clock };
    const { presence } = presenceOf(held);
    await presence.join();
    expect((await stores.read.workers.list()).map(({ id }) => id)).toEqual([presence.id]);
    left = Number.POSITIVE_INFINITY;
    await expect(presenceOf(held).presence.join()).rejects.toThrow("busy");
  });

  it("is not removed by one that could not reach the database either", async () => {
    const timed = await openTimed();
    const presences = [presenceOf(timed), presenceOf(timed)];
    for (const { presence } of presences) await presence.join();
    await beatFor(
      2 * TERM_MS,
      timed.clock,
      presences.map(({ presence }) => presence),
    );
    timed.clock.advance(3 * TERM_MS);
    for (const { presence } of presences) await presence.heartbeat();
    await beatFor(
      2 * TERM_MS,
      timed.clock,
      presences.map(({ presence }) => presence),
    );
    for (const { events } of presences) expect(events).not.toContain("let go");
    expect(await timed.stores.read.workers.list()).toHaveLength(2);
  });

  it("is looked for by one whose earlier look goes on, or fails", async () => {
    const timed = await openTimed();
    const { clock } = timed;
    const [alive, dead] = [presenceOf(timed).presence, presenceOf(timed).presence];
    await alive.join();
    await dead.join();
    const looks: { areSomeGone: boolean; end: Gate<void> }[] = [];
    alive.follow({
      poll: async ({ areSomeGone }) => {
        const end = gate<void>();
        looks.push({ areSomeGone, end });
        await end.promise;
      },
      reset: () => {},
      setPaused: () => {},
    });
    const stopping = new AbortController();
    const running = alive.run(stopping.signal);
    const nextBeat = async () => {
      await expect.poll(() => clock.sleeperCount).toBe(1);
      clock.advance(HEARTBEAT_MS);
    };
    while (looks.length === 0) await nextBeat();
    await dead.leave();
    for (let beats = 0; beats < 3; beats++) await nextBeat();
    expect(looks.map(({ areSomeGone }) => areSomeGone)).toEqual([false]);
    looks[0]?.end.open();
    while (looks.length === 1) await nextBeat();
    looks[1]?.end.fail(new Error("no"));
    while (looks.length === 2) await nextBeat();
    looks[2]?.end.open();
    while (looks.length === 3) await nextBeat();
    looks[3]?.end.open();
    expect(looks.map(({ areSomeGone }) => areSomeGone)).toEqual([false, true, true, false]);
    stopping.abort();
    await running;
  });

  it("is not removed by the first one that reaches the database again, in the middle of a beat", async () => {
    const timed = await openTimed();
    const { stores, clock } = timed;
    let outageMs = 0;
    const write: Stores["write"] = (work) => {
      clock.advance(outageMs);
      outageMs = 0;
      return stores.write(work);
    };
    const [first, other] = [presenceOf({ clock, stores: { ...stores, write } }), presenceOf(timed)];
    await first.presence.join();
    await other.presence.join();
    await beatFor(2 * TERM_MS, clock, [first.presence, other.presence]);
    clock.advance(HEARTBEAT_MS);
    outageMs = 8000;
    await first.presence.heartbeat();
    await other.presence.heartbeat();
    expect(other.events).not.toContain("let go");
    expect(await stores.read.workers.list()).toHaveLength(2);
  });

  it("is removed two beats after an outage in which it died, and another one is not that needs so long to come back", async () => {
    const timed = await openTimed();
    const [alive, late, dead] = [presenceOf(timed), presenceOf(timed), presenceOf(timed)];
    const living = [late.presence, alive.presence];
    for (const presence of [dead.presence, ...living]) await presence.join();
    await beatFor(2 * TERM_MS, timed.clock, [dead.presence, ...living]);
    timed.clock.advance(2 * TERM_MS);
    await beatFor(2 * HEARTBEAT_MS, timed.clock, [alive.presence]);
    expect(await timed.stores.read.workers.list()).toHaveLength(3);
    await beatFor(HEARTBEAT_MS, timed.clock, living);
    expect(alive.events).toContain("some gone");
    for (const { events } of [alive, late]) expect(events).not.toContain("let go");
    const ids = (await timed.stores.read.workers.list()).map(({ id }) => id);
    expect(ids.sort()).toEqual(living.map(({ id }) => id).sort());
  });

  it("[WORK-10] begins no work while another one asks for a pause", async () => {
    const timed = await openTimed();
    const [one, other] = [presenceOf(timed), presenceOf(timed, { role: "api" })];
    await one.presence.join();
    await other.presence.join();
    expect([one.presence.isFirst, other.presence.isFirst, other.presence.hasWorkers]).toEqual([
      true,
      false,
      true,
    ]);
    await other.presence.setPaused(true);
    await one.presence.heartbeat();
    expect(one.events).toEqual(["paused"]);
  });

  it("that is alone removes all others at its start, and is always fresh", async () => {
    const timed = await openTimed();
    const dead = presenceOf(timed).presence;
    await dead.join();
    const facts = { role: "all", version: "1", providers: ["p"] } as const;
    const alone = new Alone({ ...timed, ids: randomIds, log: silentLog }, facts);
    await alone.join();
    timed.clock.advance(10 * TERM_MS);
    await alone.run(new AbortController().signal);
    expect([alone.isFresh, alone.isFirst]).toEqual([true, true]);
    expect((await timed.stores.read.workers.list()).map(({ id }) => id)).toEqual([alone.id]);
    await alone.leave();
    expect(await timed.stores.read.workers.list()).toEqual([]);
  });
});
