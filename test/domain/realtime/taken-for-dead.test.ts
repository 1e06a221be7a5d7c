import { expect, it } from "vitest";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { ProviderHealth } from "../../../src/domain/health/provider-health.ts";
import { Offers } from "../../../src/domain/models.ts";
import { StorageUnavailable } from "../../../src/domain/ports/blob-store.ts";
import { DEFAULT_OPTIONS } from "../../../src/domain/ports/image-provider.ts";
import type { Stores } from "../../../src/domain/ports/stores.ts";
import { Realtime } from "../../../src/domain/realtime/realtime.ts";
import { Decoding } from "../../../src/imaging/decoding.ts";
import { sharpInspector } from "../../../src/imaging/sharp-images.ts";
import { type Clock, systemClock } from "../../../src/kernel/clock.ts";
import { randomIds } from "../../../src/kernel/ids.ts";
import { silentLog } from "../../../src/kernel/log.ts";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { Cluster } from "../../../src/workers/presence.ts";
import { onEachDialect } from "../../support/dialects.ts";
import { groupEntry, modelEntry } from "../../support/entries.ts";
import { FakeProvider, FakeUpstream, made, tinyPng, upstreamInTurns } from "../../support/fake-provider.ts";
import { type Gate, gate } from "../../support/gate.ts";
import { openKey } from "../../support/service.ts";
import { tempDir } from "../../support/temp-dir.ts";

const PRICE = 10;
const model = { ...modelEntry, prices: { "1K": PRICE / 1_000_000 } };
const group = { ...groupEntry, batchDiscount: 1, holdMultiplier: 1 };
const content = { prompt: "a fox", earlier: "", images: [], options: DEFAULT_OPTIONS };
const deps = { clock: systemClock, ids: randomIds, log: silentLog };
/** Nobody beats by himself: a process is silent for as long as a test says, however slow the test is. */
const still: Clock = { ...systemClock, monotonicMs: () => 0 };

/** An account of real money, and processes that answer its requests with one provider. */
async function processesOn(
  stores: Stores,
  provider: FakeProvider = new FakeUpstream("vendor"),
  balanceMicroUsd = 5 * PRICE,
) {
  const blobs = fileBlobs(await tempDir());
  const key = await openKey(stores, { balanceMicroUsd });
  const caller = { key, group };
  /** Each image waits for its gate, and is another picture. */
  const gates: Gate<void>[] = [];
  provider.answer = async () => {
    const mine = gate();
    const shade = gates.push(mine);
    await mine.promise;
    return made(await tinyPng(shade));
  };
  return {
    gates,
    key,
    start: async (own: Stores = stores, clock = still) => {
      const facts = { role: "api", version: "1", providers: [] } as const;
      const presence = new Cluster({ ...deps, clock, stores: own }, facts);
      await presence.join();
      const health = new ProviderHealth(deps, [provider]);
      const realtime = new Realtime({
        ...deps,
        stores: own,
        blobs,
        presence,
        health,
        inspector: sharpInspector(new Decoding(1)),
        offers: new Offers([provider], [model]),
        timeoutMs: 0,
        unknownOutcome: "once",
        rate: { requestsPerMinute: 0, concurrentRequests: 0 },
      });
      const asked = { caller, model, content, fingerprint: "f", gone: new AbortController().signal };
      return {
        presence,
        /** How many outcomes there are. */
        make: (count = 1) => {
          let outcomes = 0;
          const render = (contents: readonly unknown[]) => {
            outcomes = contents.length;
            return Buffer.alloc(0);
          };
          const made = realtime
            .answer({ ...asked, count, key: null, render, fieldOf: String })
            .then(() => outcomes);
          made.catch(() => {});
          return made;
        },
        /** The bytes of the answer, and whether it is a replay. */
        answer: async () => {
          const render: Parameters<Realtime["answer"]>[0]["render"] = ([first]) =>
            first?.images[0]?.image ?? Buffer.alloc(0);
          const answer = await realtime.answer({ ...asked, count: 1, key: "once", render, fieldOf: String });
          if ("error" in answer) throw answer.error;
          return [answer.body.toString("base64"), answer.isReplay];
        },
      };
    },
    /** Others take a process for dead; it does not know yet. */
    takeForDead: async ({ presence }: { presence: Cluster }, other: { presence: Cluster }) => {
      const { id } = presence;
      await stores.write((tx) => tx.workers.remove(id));
      await other.presence.poll();
    },
    /** Balance, held amount, and movements of money after the first. */
    books: async () => {
      const { problems } = await checkInvariants(stores, blobs);
      expect(problems).toEqual([]);
      const account = await stores.read.accounts.byId(key.accountId);
      const moved = (await stores.read.ledger.list({})).slice(1).map(({ kind }) => kind);
      return [account?.balanceMicroUsd, account?.heldMicroUsd, moved.join(" ")];
    },
  };
}

/** Two processes, of which the first was taken for dead by the other while it answers a request with a key. */
async function answerOfOneTakenForDead(stores: Stores, own = stores) {
  const { gates, start, takeForDead, books } = await processesOn(stores);
  const [one, other] = [await start(own), await start()];
  const early = one.answer();
  await expect.poll(() => gates.length).toBe(1);
  await takeForDead(one, other);
  return { gates, other, early, books };
}

onEachDialect("a process that was taken for dead", (open) => {
  it("is paid for what an upstream made, of several images of one request, too", async () => {
    const stores = await open();
    const { gates, start, takeForDead, books } = await processesOn(stores);
    const [one, other] = [await start(), await start()];
    const making = one.make(2);
    await expect.poll(() => gates.length).toBe(2);
    await takeForDead(one, other);
    expect(await books()).toEqual([5 * PRICE, 0, "hold release"]);
    await one.presence.heartbeat();
    for (const each of gates) each.open();
    expect(await making).toBe(2);
    expect(await books()).toEqual([3 * PRICE, 0, "hold release charge"]);
    expect(await stores.read.usage.count()).toBe(2);
    const calls = await stores.read.providerCalls.list({});
    expect(calls).toMatchObject([{ images: 2, billedMicroUsd: 2 * PRICE }]);
  });

  it("does not give an image out that the balance does not pay any more, and counts the call", async () => {
    const stores = await open();
    const { gates, start, takeForDead, books } = await processesOn(stores, undefined, PRICE);
    const [one, other] = [await start(), await start()];
    const late = one.make();
    await expect.poll(() => gates.length).toBe(1);
    await takeForDead(one, other);
    const next = other.make();
    await expect.poll(() => gates.length).toBe(2);
    for (const each of gates) each.open();
    await expect(late).rejects.toMatchObject({ code: "REALTIME_INSUFFICIENT_BALANCE" });
    expect(await next).toBe(1);
    await expect.poll(books).toEqual([0, 0, "hold release hold capture"]);
    const calls = async () => await stores.read.providerCalls.list({});
    await expect.poll(calls).toMatchObject([{ images: 2, billedMicroUsd: PRICE }]);
  });

  it("stops what no upstream was paid for, and takes the next request as another worker", async () => {
    const stores = await open();
    const { gates, start, takeForDead, books } = await processesOn(stores, new FakeProvider());
    const [one, other] = [await start(), await start()];
    const making = one.make();
    await expect.poll(() => gates.length).toBe(1);
    await takeForDead(one, other);
    await expect(one.make()).rejects.toMatchObject({ code: "REALTIME_STOPPING" });
    await one.presence.heartbeat();
    await expect(making).rejects.toMatchObject({ code: "REALTIME_STOPPING" });
    expect(await books()).toEqual([5 * PRICE, 0, "hold release"]);
    const next = one.make();
    await expect.poll(() => gates.length).toBe(2);
    gates[1]?.open();
    expect(await next).toBe(1);
  });

  it("or may have been, sends nothing until it has reached the database again", async () => {
    const { upstream, turns } = upstreamInTurns("vendor");
    const { gates, start, books } = await processesOn(await open(), upstream);
    let silentMs = 0;
    const { make, presence } = await start(undefined, { ...still, monotonicMs: () => silentMs });
    const making = make();
    await expect.poll(() => turns.length).toBe(1);
    silentMs = 5000;
    turns[0]?.open();
    await expect(making).rejects.toMatchObject({ code: "REALTIME_STOPPING" });
    await expect.poll(books).toEqual([5 * PRICE, 0, "hold release"]);
    expect(upstream.requests).toEqual([]);
    await presence.heartbeat();
    const next = make();
    await expect.poll(() => turns.length).toBe(2);
    turns[1]?.open();
    await expect.poll(() => gates.length).toBe(1);
    gates[0]?.open();
    expect(await next).toBe(1);
  });

  it("answers with an idempotency key as the other process does that has begun meanwhile", async () => {
    const stores = await open();
    const { gates, other, early, books } = await answerOfOneTakenForDead(stores);
    const repeat = other.answer();
    await expect.poll(() => gates.length).toBe(2);
    gates[0]?.open();
    await expect.poll(async () => (await stores.read.providerCalls.list({})).length).toBe(1);
    gates[1]?.open();
    const [[first, isReplay], [second]] = await Promise.all([early, repeat]);
    expect([first === second, isReplay]).toEqual([true, true]);
    expect(await books()).toEqual([4 * PRICE, 0, "hold release hold capture"]);
    const calls = await stores.read.providerCalls.list({});
    expect(calls).toMatchObject([{ images: 2, maybePaidTwice: 1, billedMicroUsd: PRICE }]);
  });

  it("answers so also when the other ends between two looks at it", async () => {
    const stores = await open();
    let betweenLooks = async () => {};
    const { realtimeHolds } = stores.read;
    const isOpen: typeof realtimeHolds.isOpen = async (id) => {
      await betweenLooks();
      return realtimeHolds.isOpen(id);
    };
    const own = { ...stores, read: { ...stores.read, realtimeHolds: { ...realtimeHolds, isOpen } } };
    const { gates, other, early } = await answerOfOneTakenForDead(stores, own);
    const repeat = other.answer();
    await expect.poll(() => gates.length).toBe(2);
    betweenLooks = async () => {
      gates[1]?.open();
      await repeat;
    };
    gates[0]?.open();
    expect((await early)[0]).toBe((await repeat)[0]);
  });

  it("gives nothing out, and bills nothing, after the request was given up", async () => {
    const stores = await open();
    const { gates, start, takeForDead, books } = await processesOn(stores);
    const [one, two, three] = [await start(), await start(), await start()];
    const ended = (answer: Promise<unknown>) => answer.catch((error) => error);
    const late = [ended(one.answer())];
    await expect.poll(() => gates.length).toBe(1);
    await takeForDead(one, three);
    late.push(ended(two.answer()));
    await expect.poll(() => gates.length).toBe(2);
    await takeForDead(two, three);
    const unknown = { code: "REALTIME_OUTCOME_UNKNOWN" };
    await expect(three.answer()).rejects.toMatchObject(unknown);
    for (const each of gates) each.open();
    expect(await Promise.all(late)).toMatchObject([unknown, unknown]);
    await expect(three.answer()).rejects.toMatchObject(unknown);
    await expect.poll(books).toEqual([5 * PRICE, 0, "hold release hold release"]);
    expect(gates).toHaveLength(2);
  });

  it("answers with an idempotency key itself when no other has begun", async () => {
    const stores = await open();
    const { gates, other, early, books } = await answerOfOneTakenForDead(stores);
    gates[0]?.open();
    const [first] = await early;
    expect(await other.answer()).toEqual([first, true]);
    expect(await books()).toEqual([4 * PRICE, 0, "hold release charge"]);
  });

  it("releases a hold of which it does not know whether it was placed", async () => {
    const stores = await open();
    const { key, start, books } = await processesOn(stores);
    let isLost = false;
    const write: Stores["write"] = async (work) => {
      const result = await stores.write(work);
      if (isLost && (await stores.read.realtimeHolds.countOpen(key.id)) > 0) {
        throw new StorageUnavailable("unknown-commit", "lost", null);
      }
      return result;
    };
    const one = await start({ ...stores, write });
    isLost = true;
    await expect(one.make()).rejects.toThrow("lost");
    await expect.poll(books).toEqual([5 * PRICE, 0, "hold release"]);
  });

  it("gives out what is paid for, also when the commit of the payment got no answer", async () => {
    const stores = await open();
    const { gates, start, books } = await processesOn(stores);
    let isLost = false;
    const write: Stores["write"] = async (work) => {
      const result = await stores.write(work);
      if (!isLost) return result;
      isLost = false;
      throw new StorageUnavailable("unknown-commit", "lost", null);
    };
    const one = await start({ ...stores, write });
    const making = one.make();
    await expect.poll(() => gates.length).toBe(1);
    isLost = true;
    gates[0]?.open();
    expect(await making).toBe(1);
    expect(await books()).toEqual([4 * PRICE, 0, "hold capture"]);
  });
});
