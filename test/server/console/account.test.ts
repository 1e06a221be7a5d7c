import { describe, expect, it } from "vitest";
import type { LedgerEntryObject } from "../../../src/contract/console-api.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeProvider, made, madeAfter, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { content, generate } from "../../support/realtime.ts";
import { items, MODEL, otherKey, startTestService, type TestService } from "../../support/service.ts";

async function get(service: TestService, path: string, headers: Record<string, string> = {}) {
  const authorization = `Bearer ${service.credentials.api_key}`;
  const answer = await fetch(`${service.url}/v1/${path}`, { headers: { authorization, ...headers } });
  return { status: answer.status, body: await answer.json() };
}

/** A service at a fixed time with one image made by a batch, one failed, and one made in real time. */
async function usedService() {
  const provider = new FakeProvider();
  provider.answer = async ({ prompt }) => {
    if (prompt === "picture 2") throw new ProviderError("SAFETY_BLOCKED", "no");
    return made(await tinyPng());
  };
  const service = await startTestService({ providers: [provider], clock: new FakeClock() });
  const { id } = await service.submit({ model: MODEL, items: items(2) });
  await service.until(id);
  await (await generate(service, content("fox"))).arrayBuffer();
  return { service, id };
}

describe("the account of a key", () => {
  it("[ACCOUNT-1] shows the balance, and the money that is held while a batch works", async () => {
    const open = gate();
    const provider = new FakeProvider();
    provider.answer = madeAfter(open);
    const service = await startTestService({ providers: [provider] });
    const before = { object: "account", balance: 1000, held: 0, play_money: true, real_money: null };
    const key = { name: "local", prefix: service.credentials.api_key.slice(0, 12) };
    expect((await get(service, "account")).body).toMatchObject({ ...before, key, owner: true });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    expect((await get(service, "account")).body).toMatchObject({ balance: 999.9598, held: 0.0402 });
    open.open();
    await service.until(id);
    expect((await get(service, "account")).body).toMatchObject({ balance: 999.9665, held: 0 });
  });

  it("names the limits of the service as it is configured", async () => {
    const config = { limits: { itemsPerBatch: 7, zipItems: 5 } };
    const service = await startTestService({ workers: false, config });
    const { limits } = (await get(service, "account")).body;
    expect(limits).toMatchObject({ items_per_batch: 7, zip_items: 5, output_count_per_item: 4 });
    const answer = await service.create({ model: MODEL, items: items(8) });
    expect((await answer.json()).error.code).toBe("BATCH_IMAGE_INVALID_ITEMS");
  });

  it("[ACCOUNT-1] needs a key, and shows each key its own account", async () => {
    const service = await startTestService({ workers: false });
    const other = await otherKey(service, { account: "second" });
    expect((await get(service, "account", other.headers)).body).toMatchObject({ balance: 1, owner: false });
    for (const path of ["account", "usage", "ledger"]) {
      const answer = await fetch(`${service.url}/v1/${path}`);
      expect([answer.status, await answer.json()]).toMatchObject([
        401,
        { error: { code: "API_KEY_REQUIRED" } },
      ]);
    }
  });
});

describe("the usage of a key", () => {
  it("sums up batches and real-time images by day and model", async () => {
    const { service } = await usedService();
    const line = { day: "2030-01-02", model: MODEL, image_count: 2, cost: 0.1005, play_money: true };
    const all = { object: "list", data: [line], has_more: false, next_cursor: null };
    expect((await get(service, "usage")).body).toEqual(all);
    expect((await get(service, "usage?from=2030-01-02&to=2030-01-02")).body).toEqual(all);
    expect((await get(service, "usage?from=2030-01-03&to=2030-01-04")).body.data).toEqual([]);
    expect((await get(service, "usage?to=2030-01-01")).body.data).toEqual([]);
  });

  it("is of this key alone, also when another has the same account", async () => {
    const { service } = await usedService();
    const other = await otherKey(service);
    expect((await get(service, "usage", other.headers)).body.data).toEqual([]);
  });

  it.each([["from=2030-01-03&to=2030-01-02"], ["from=2029-01-01&to=2030-01-31"], ["from=yesterday"]])(
    "refuses %s",
    async (query) => {
      const service = await startTestService({ workers: false });
      const { status, body } = await get(service, `usage?${query}`);
      expect([status, body.error.code, body.error.param]).toEqual([400, "BATCH_IMAGE_INVALID_QUERY", "from"]);
    },
  );
});

describe("the ledger of an account", () => {
  it("has every movement, newest first, with the balance after it, on pages of any size", async () => {
    const { service, id } = await usedService();
    const { body } = await get(service, "ledger");
    const entries: LedgerEntryObject[] = body.data;
    expect(entries.map(({ kind }) => kind)).toEqual([
      "capture",
      "hold",
      "release",
      "capture",
      "hold",
      "top_up",
    ]);
    expect(entries.map(({ batch_id }) => batch_id)).toEqual([null, null, id, id, id, null]);
    const balances = entries.map(({ balance }) => balance);
    expect(balances[0]).toBe((await get(service, "account")).body.balance);
    for (const [i, { balance_change }] of entries.slice(0, -1).entries()) {
      expect((balances[i] ?? 0) - (balances[i + 1] ?? 0)).toBeCloseTo(balance_change, 9);
    }
    const paged = [];
    for (let cursor: string | null = ""; cursor !== null; ) {
      const page: { data: unknown[]; next_cursor: string | null } = (
        await get(service, `ledger?limit=2&cursor=${cursor}`)
      ).body;
      paged.push(...page.data);
      cursor = page.next_cursor;
    }
    expect(paged).toEqual(entries);
  });

  it("names no batch of another key of the account, and nothing of another account", async () => {
    const { service, id } = await usedService();
    const sharing = await get(service, "ledger", (await otherKey(service)).headers);
    expect(sharing.body.data).toHaveLength(6);
    expect(JSON.stringify(sharing.body)).not.toContain(id);
    const stranger = await get(service, "ledger", (await otherKey(service, { account: "second" })).headers);
    expect(stranger.body.data).toMatchObject([{ kind: "top_up", balance: 1, play_money: false }]);
  });
});
