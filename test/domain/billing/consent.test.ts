import { describe, expect, it } from "vitest";
import { moveMoney } from "../../../src/domain/billing/ledger.ts";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { openHold, releaseDeadHolds } from "../../../src/domain/realtime/holds.ts";
import { openAdmin } from "../../../src/service/admin.ts";
import { FakeProvider, FakeUpstream } from "../../support/fake-provider.ts";
import { answerOf, content, errorOf, generate } from "../../support/realtime.ts";
import {
  items,
  MODEL,
  openBeside,
  otherKey,
  startTestService,
  type TestService,
} from "../../support/service.ts";
import { joinAs } from "../../support/stores.ts";

const PLAY = 1_000_000_000;
/** The price of one image of a batch, and of one image in real time. */
const [PRICE, HOLD, REALTIME] = [33_500, 40_200, 67_000];
const consent = (usd: string) => ({ "x-imgbatch-max-cost": usd });
const refused = () => {
  throw new ProviderError("PROVIDER_ITEM_FAILED", "no", { retryable: false, upstreamStatus: 400 });
};

async function moneyOf({ data }: TestService) {
  const { stores, blobs } = await openBeside(data);
  return {
    stores,
    /** The movements of real money, or of one request. */
    moved: async () =>
      (await stores.read.ledger.list({})).slice(1).map(({ kind, amountMicroUsd }) => [kind, amountMicroUsd]),
    balances: async () =>
      Object.fromEntries(
        (await stores.read.accounts.list()).map(({ name, balanceMicroUsd }) => [name, balanceMicroUsd]),
      ),
    problems: async () => (await checkInvariants(stores, blobs)).problems,
  };
}

/** A service with one account of play money, whose images cost real money. */
async function paidService(answer?: FakeProvider["answer"]) {
  const provider = new FakeUpstream("paid");
  if (answer) provider.answer = answer;
  const service = await startTestService({ providers: [provider] });
  return { service, provider, money: await moneyOf(service) };
}

describe("play money", () => {
  it("does not pay for images of an upstream: their account begins with nothing", async () => {
    const { service, provider, money } = await paidService();
    const answer = await service.create({ model: MODEL, items: items(2) });
    expect(answer.status).toBe(402);
    expect(await answer.json()).toMatchObject({
      error: {
        code: "BATCH_IMAGE_INSUFFICIENT_BALANCE",
        message: expect.stringContaining("imgbatch admin accounts top-up"),
      },
    });
    const single = await generate(service, content("x"));
    expect(single.status).toBe(402);
    expect((await errorOf(single)).message).toContain("imgbatch admin accounts top-up");
    expect(await money.balances()).toEqual({ default: PLAY, "default (real)": 0 });
    expect([provider.requests, await money.moved(), await money.problems()]).toEqual([[], [], []]);
    const admin = await openAdmin({ directory: service.data });
    await admin.topUp("default", 2 * HOLD);
    await admin.close();
    expect((await service.create({ model: MODEL, items: items(2) })).status).toBe(200);
  });

  it("pays for drawings beside an upstream; real money never does", async () => {
    const models = ["drawn", "bought"].map((id) => ({ id, prices: { "1K": 1 } }));
    const providers = [
      new FakeProvider({ model: "drawn" }),
      new FakeUpstream("paid", { modelFor: (id) => (id === "bought" ? id : null) }),
    ];
    const service = await startTestService({ providers, config: { models } });
    const money = await moneyOf(service);
    const { key, headers: theirs } = await otherKey(service, { account: "team", balanceMicroUsd: 0 });
    const request = { model: "drawn", items: items(1) };

    expect((await service.until((await service.submit(request)).id)).actual_cost).toBe(0.5);
    const free = (await (await service.create(request, theirs)).json()) as { estimated_cost: number };
    expect(free).toMatchObject({ estimated_cost: 0, hold_amount: 0, status: "queued" });
    const prices = async (headers: object) => {
      const answer = await service.ask("/models", { headers: { ...headers } });
      return ((await answer.json()) as { data: { pricing: object }[] }).data.map(({ pricing }) => pricing);
    };
    const bought = { batch_image: 0.5, paid: true };
    expect(await prices({})).toMatchObject([{ batch_image: 0.5 }, bought]);
    expect(await prices(theirs)).toMatchObject([{ batch_image: 0 }, bought]);
    expect(
      (await generate(service, content("x"), { model: "drawn", headers: { "x-vendorx-api-key": key } }))
        .status,
    ).toBe(200);
    expect((await service.create({ ...request, model: "bought" }, theirs)).status).toBe(402);
    expect(await money.problems()).toEqual([]);
  });

  it("images of a free upstream cost nothing", async () => {
    const service = await startTestService({ providers: [new FakeUpstream("free", { isFree: true })] });
    const money = await moneyOf(service);
    const batch = await service.submit({ model: MODEL, items: items(2) });
    expect(batch).toMatchObject({ estimated_cost: 0, hold_amount: 0 });
    expect(await service.until(batch.id)).toMatchObject({ status: "completed", actual_cost: 0 });
    expect((await generate(service, content("x"))).status).toBe(200);
    expect(await money.balances()).toEqual({ default: PLAY, "default (real)": 0 });
    expect((await money.moved()).every(([, amount]) => amount === 0)).toBe(true);
    expect(await money.problems()).toEqual([]);
  });
});

describe("consent", () => {
  it("grants exactly the hold, takes back the rest, and grants nothing to a replay", async () => {
    const fails = new Set(["picture 2"]);
    const fake = new FakeProvider();
    const { service, money } = await paidService((request, signal) =>
      fails.has(request.prompt) ? refused() : fake.answer(request, signal),
    );
    const headers = { ...consent("9"), "idempotency-key": "k" };
    const { id } = await service.submit({ model: MODEL, items: items(3) }, headers);
    expect(await service.until(id)).toMatchObject({ status: "completed", fail_count: 1 });
    const story = [
      ["grant", 3 * HOLD],
      ["hold", 3 * HOLD],
      ["capture", 2 * PRICE],
      ["release", 3 * HOLD - 2 * PRICE],
      ["take_back", 3 * HOLD - 2 * PRICE],
    ];
    expect(await money.moved()).toEqual(story);
    for (const more of [consent("9"), {}]) {
      const again = await service.submit({ model: MODEL, items: items(3) }, { ...headers, ...more });
      expect(again.id).toBe(id);
    }
    expect(await money.moved()).toEqual(story);
    expect(await money.balances()).toEqual({ default: PLAY, "default (real)": 0 });
    expect(await money.problems()).toEqual([]);
  });

  it("a cancelled batch gives everything back", async () => {
    const { service, money } = await paidService();
    await service.setPaused(true);
    const { id } = await service.submit({ model: MODEL, items: items(2) }, consent("1"));
    expect((await service.ask(`/${id}/cancel`, { method: "POST" })).status).toBe(200);
    expect(await money.moved()).toEqual(
      ["grant", "hold", "release", "take_back"].map((kind) => [kind, 2 * HOLD]),
    );
    expect(await money.problems()).toEqual([]);
  });

  it("that is lower than the hold makes nothing", async () => {
    const { service, provider, money } = await paidService();
    const answer = await service.create({ model: MODEL, items: items(3) }, consent("0.120599"));
    expect(answer.status).toBe(402);
    expect(await answer.json()).toMatchObject({
      error: { message: expect.stringMatching(/\$0\.1206 on hold, more than the \$0\.120599/) },
    });
    expect((await generate(service, content("x"), { headers: consent("0.06") })).status).toBe(402);
    expect((await service.create({ model: MODEL, items: items(1) }, consent("1e3"))).status).toBe(400);
    expect((await generate(service, content("x"), { headers: consent("-1") })).status).toBe(400);
    expect(await money.stores.read.batches.all()).toEqual([]);
    expect([provider.requests, await money.moved(), await money.problems()]).toEqual([[], [], []]);
    expect((await service.create({ model: MODEL, items: items(3) }, consent("0.1206"))).status).toBe(200);
  });

  it("counts for the local key alone; another key pays from its balance", async () => {
    const { service, money } = await paidService();
    const other = await otherKey(service, { account: "team", balanceMicroUsd: HOLD });
    const headers = { ...consent("9"), ...other.headers };
    expect((await service.create({ model: MODEL, items: items(2) }, headers)).status).toBe(402);
    const made = await service.create({ model: MODEL, items: items(1) }, headers);
    const { id } = (await made.json()) as { id: string };
    await money.stores.read.batches.byId(id);
    const kinds = async () =>
      (await money.stores.read.ledger.list({ batchIds: [id] })).map(({ kind }) => kind);
    expect((await kinds())[0]).toBe("hold");
    expect(await kinds()).not.toContain("grant");
  });

  it("counts for paid upstreams alone: drawings cost the play money that they always did", async () => {
    const service = await startTestService({ providers: [new FakeProvider()] });
    const money = await moneyOf(service);
    const { id } = await service.submit({ model: MODEL, items: items(1) }, consent("0.000001"));
    await service.until(id);
    expect((await generate(service, content("x"), { headers: consent("0") })).status).toBe(200);
    expect(await money.balances()).toEqual({ default: PLAY - PRICE - REALTIME });
    expect((await money.moved()).map(([kind]) => kind)).not.toContain("grant");
  });

  it("grants a single image its price, and takes it back when none was made", async () => {
    const { service, provider, money } = await paidService();
    const answer = await generate(service, content("x"), { headers: consent("0.067") });
    expect((await answerOf(answer)).candidates).toHaveLength(1);
    const paid = ["grant", "hold", "capture"].map((kind) => [kind, REALTIME]);
    expect(await money.moved()).toEqual(paid);
    provider.answer = refused;
    expect((await generate(service, content("x"), { headers: consent("1") })).ok).toBe(false);
    await service.close(0);
    const back = ["grant", "hold", "release", "take_back"].map((kind) => [kind, REALTIME]);
    expect(await money.moved()).toEqual([...paid, ...back]);
    expect(await money.problems()).toEqual([]);
  });

  it("takes the price back after a crash", async () => {
    const { service, money } = await paidService();
    const { stores } = money;
    const [key] = await stores.read.keys.list();
    const accountId = (await stores.read.accounts.list())[0]?.id ?? "";
    const hold = {
      id: "gen_1",
      apiKeyId: key?.id ?? "",
      accountId,
      amountMicroUsd: 5,
      createdAtMs: 1,
      worker: await joinAs(stores, "gone"),
    };
    await openHold(stores, hold, { consentMicroUsd: 5, isUpstream: true });
    await stores.write((tx) => tx.workers.remove("gone"));
    expect(await money.problems()).toEqual([]);
    await releaseDeadHolds(stores, 2);
    expect((await money.moved()).map(([kind]) => kind)).toEqual(["grant", "hold", "release", "take_back"]);
    expect(await money.problems()).toEqual([]);
    expect(service.url).toContain("http");
  });

  it("the check finds a grant that differs from its hold, and money that was not taken back", async () => {
    const { service, money } = await paidService(refused);
    const { id } = await service.submit({ model: MODEL, items: items(1) }, consent("1"));
    await service.until(id);
    expect(await money.problems()).toEqual([]);
    const accountId = (await money.stores.read.batches.byId(id))?.accountId ?? "";
    const more = { accountId, batchId: id, kind: "grant" as const, amountMicroUsd: 1 };
    await money.stores.write((tx) => moveMoney(tx, { ...more, requestId: "grant:twice" }, 1));
    expect(await money.problems()).toEqual([
      `batch ${id}: granted ${HOLD + 1}, should be ${HOLD} or nothing`,
    ]);
    const rest = { accountId, batchId: null, kind: "take_back" as const, amountMicroUsd: 1 };
    await money.stores.write((tx) => moveMoney(tx, { ...rest, requestId: "take_back:gen_9" }, 1));
    expect(await money.problems()).toContain("real-time request gen_9: taken back 1, should be 0");
  });
});
