import { describe, expect, it } from "vitest";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { endHold, openHold, releaseDeadHolds } from "../../../src/domain/realtime/holds.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeProvider, made, tinyPng } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { answerOf, content, errorOf, generate, imagesOf } from "../../support/realtime.ts";
import { items, MODEL, openBeside, startTestService, type TestService } from "../../support/service.ts";
import { joinAs } from "../../support/stores.ts";

const START_MICRO_USD = 1_000_000_000;

async function moneyOf(data: string) {
  const { stores, blobs } = await openBeside(data);
  return {
    stores,
    account: async () => {
      const { balanceMicroUsd: balance, heldMicroUsd: held } =
        (await stores.read.accounts.byName("default")) ?? {};
      return { balance, held };
    },
    kinds: async () =>
      (await stores.read.ledger.list({})).map(({ kind, amountMicroUsd }) => `${kind} ${amountMicroUsd}`),
    problems: async () => (await checkInvariants(stores, blobs)).problems,
  };
}

describe("the money of a real-time image", () => {
  it("[RT-15] is the price of model and size, by group and provider, with one usage record", async () => {
    const config = {
      groups: [{ name: "default", rateMultiplier: 1.5, batchDiscount: 0.1 }],
      providers: [{ name: "procedural", type: "procedural", rateMultiplier: 2 }],
    };
    const service = await startTestService({ workers: false, config });
    const answer = await answerOf(await generate(service, content("x", { imageSize: "4K" })));
    const money = await moneyOf(service.data);
    expect(await money.kinds()).toEqual([`top_up ${START_MICRO_USD}`, "hold 453000", "capture 453000"]);
    expect(await money.account()).toEqual({ balance: START_MICRO_USD - 453_000, held: 0 });
    expect(await money.stores.read.usage.list()).toMatchObject([
      {
        realtimeId: answer.responseId,
        imageIndex: 0,
        model: MODEL,
        size: "4K",
        ratio: "1:1",
        amountMicroUsd: 453_000,
      },
    ]);
    expect(await money.problems()).toEqual([]);
  });

  it("[RT-15] is paid once when the model makes several images; each has its record", async () => {
    const provider = new FakeProvider();
    provider.answer = async () => made(await tinyPng(1), await tinyPng(2));
    const service = await startTestService({ workers: false, providers: [provider] });
    const answer = await answerOf(await generate(service, content("x")));
    expect(imagesOf(answer)).toHaveLength(2);
    const money = await moneyOf(service.data);
    expect((await money.stores.read.usage.list()).map((record) => record.amountMicroUsd)).toEqual([
      67_000, 0,
    ]);
    expect((await money.account()).balance).toBe(START_MICRO_USD - 67_000);
    expect(await money.problems()).toEqual([]);
  });

  it("[RT-16] is held before the work, so parallel requests never spend more than there is", async () => {
    const provider = new FakeProvider({ concurrency: 16 });
    const png = await tinyPng();
    provider.answer = () => made(png);
    // The balance of 1000 pays for five.
    const models = [{ id: MODEL, prices: { "1K": 190 } }];
    const service = await startTestService({ workers: false, providers: [provider], config: { models } });
    const answers = await Promise.all(Array.from({ length: 16 }, () => generate(service, content("x"))));
    const statuses = answers.map((answer) => answer.status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(5);
    expect(statuses.filter((status) => status === 402)).toHaveLength(11);
    for (const answer of answers) {
      if (answer.status === 200) await answer.arrayBuffer();
      else expect(await errorOf(answer)).toMatchObject({ code: 402, status: "FAILED_PRECONDITION" });
    }
    const money = await moneyOf(service.data);
    expect(await money.account()).toEqual({ balance: 50_000_000, held: 0 });
    expect(provider.requests).toHaveLength(5);
    expect(await money.problems()).toEqual([]);
  });

  it("[RT-18] goes back when the caller goes away, and the work is stopped", async () => {
    const asked = gate();
    const stopped = gate();
    const provider = new FakeProvider();
    provider.answer = (_, signal) => {
      asked.open();
      signal.addEventListener("abort", () => stopped.open());
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    };
    const service = await startTestService({ workers: false, providers: [provider] });
    const caller = new AbortController();
    const pending = generate(service, content("x"), { signal: caller.signal });
    await asked.promise;
    const money = await moneyOf(service.data);
    expect(await money.account()).toEqual({ balance: START_MICRO_USD - 67_000, held: 67_000 });
    expect(await money.problems()).toEqual([]);
    caller.abort();
    await expect(pending).rejects.toThrow();
    await stopped.promise;
    await expect.poll(() => money.account()).toEqual({ balance: START_MICRO_USD, held: 0 });
    expect(await money.problems()).toEqual([]);
  });

  it("[RT-18] goes back when time is up, whatever the provider does", async () => {
    const clock = new FakeClock();
    const asked = gate();
    const never = gate();
    const provider = new FakeProvider();
    provider.answer = async () => {
      asked.open();
      await never.promise;
      return made();
    };
    const service = await startTestService({ workers: false, providers: [provider], clock });
    const pending = generate(service, content("x"));
    await asked.promise;
    clock.advance(300_000);
    const answer = await pending;
    expect([answer.status, (await errorOf(answer)).status]).toEqual([504, "DEADLINE_EXCEEDED"]);
    const money = await moneyOf(service.data);
    await expect.poll(() => money.account()).toEqual({ balance: START_MICRO_USD, held: 0 });
    never.open();
  });

  it("[RT-18] is released when the service stops, and waiting callers get an error", async () => {
    const asked = gate();
    const provider = new FakeProvider();
    provider.answer = (_, signal) => {
      asked.open();
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    };
    const service = await startTestService({ workers: false, providers: [provider] });
    const pending = generate(service, content("x"));
    await asked.promise;
    await service.close(0);
    const answer = await pending;
    const { status, details } = await errorOf(answer);
    expect([answer.status, status]).toEqual([503, "UNAVAILABLE"]);
    expect(details).toContainEqual(expect.objectContaining({ reason: "REALTIME_STOPPING" }));
    const money = await moneyOf(service.data);
    expect(await money.account()).toEqual({ balance: START_MICRO_USD, held: 0 });
    expect((await money.kinds()).slice(1)).toEqual(["hold 67000", "release 67000"]);
  });

  it("that a dead process held goes back at the next start, once", async () => {
    const service = await startTestService({ workers: false });
    const money = await moneyOf(service.data);
    const [key] = await money.stores.read.keys.list();
    const hold = {
      apiKeyId: key?.id ?? "",
      accountId: key?.accountId ?? "",
      amountMicroUsd: 5,
      createdAtMs: 1,
      worker: await joinAs(money.stores, "gone"),
    };
    await openHold(money.stores, { ...hold, id: "gen_1" });
    await openHold(money.stores, { ...hold, id: "gen_2" });
    await endHold(money.stores, { ...hold, id: "gen_2" }, [], [], 2);
    await money.stores.write((tx) => tx.workers.remove("gone"));
    expect(await releaseDeadHolds(money.stores, 3)).toBe(1);
    expect(await releaseDeadHolds(money.stores, 4)).toBe(0);
    await endHold(money.stores, { ...hold, id: "gen_1" }, [], [], 5);
    expect(await money.account()).toEqual({ balance: START_MICRO_USD, held: 0 });
    expect(await money.problems()).toEqual([]);
  });

  it("is checked: holds, captures and usage records that do not agree are found", async () => {
    const service = await startTestService({ workers: false });
    const { responseId } = await answerOf(await generate(service, content("x")));
    const money = await moneyOf(service.data);
    const [record] = await money.stores.read.usage.list();
    if (!record) throw new Error("no usage record");
    await money.stores.write(async (tx) => {
      await tx.usage.insertMany([{ ...record, imageIndex: 7, amountMicroUsd: 1 }]);
      const { apiKeyId, accountId } = record;
      const lost = { id: "gen_lost", apiKeyId, accountId, amountMicroUsd: 9, createdAtMs: 1, worker: "gone" };
      await tx.realtimeHolds.insert(lost);
      await tx.accounts.insert({ id: "acct_other", name: "other", createdAtMs: 1 });
      await tx.realtimeHolds.insert({ ...lost, id: "gen_2", accountId: "acct_other", amountMicroUsd: 5 });
    });
    const problems = await money.problems();
    expect(problems).toContainEqual(
      `real-time request ${responseId}: captured 67000, its usage records say 67001`,
    );
    expect(problems).toContainEqual(
      expect.stringContaining("gen_lost: hold 0 is not capture 0 + release 0 + open 9"),
    );
    for (const [account, amount] of [
      ["default", 9],
      ["other", 5],
    ])
      expect(problems).toContainEqual(
        `account ${account}: held amount against unfinished work is 0, should be ${amount} (micro-dollars)`,
      );
  });
});

it("a real-time request comes before the items of a batch that wait, and both end", async () => {
  const provider = new FakeProvider({ concurrency: 1 });
  const first = gate();
  provider.answer = async ({ prompt }) => {
    if (prompt === "picture 1") await first.promise;
    return made(await tinyPng());
  };
  const service = await startTestService({ providers: [provider] });
  const { id } = await service.submit({ model: MODEL, items: items(3) });
  await expect.poll(() => provider.running).toBe(1);
  const pending = generate(service, content("now"));
  // The service shows the hold when it is durable, and the request has joined the line by then.
  const authorization = `Bearer ${service.credentials.api_key}`;
  const account = () => fetch(`${service.url}/v1/account`, { headers: { authorization } });
  await expect.poll(async () => (await (await account()).json()).held).toBe(3 * 0.0402 + 0.067);
  first.open();
  expect(imagesOf(await answerOf(await pending))).toHaveLength(1);
  expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 3 });
  expect(provider.requests.map(({ prompt }) => prompt)).toEqual([
    "picture 1",
    "now",
    "picture 2",
    "picture 3",
  ]);
  expect(provider.maxRunning).toBe(1);
});

async function statusOf(service: TestService, verb = "generateContent"): Promise<[number, string | null]> {
  const answer = await generate(service, content("x"), { verb });
  await answer.arrayBuffer();
  return [answer.status, answer.headers.get("retry-after")];
}

describe("the limits of a key", () => {
  it("[RT-14] bound how many requests begin in any minute", async () => {
    const clock = new FakeClock();
    const config = { limits: { requestsPerMinute: 3 } };
    const service = await startTestService({ workers: false, config, clock });
    expect(await statusOf(service)).toEqual([200, null]);
    clock.advance(50_000);
    expect(await statusOf(service, "streamGenerateContent?alt=sse")).toEqual([200, null]);
    expect(await statusOf(service)).toEqual([200, null]);
    expect(await statusOf(service)).toEqual([429, "10"]);
    const error = await errorOf(await generate(service, content("x")));
    expect(error).toMatchObject({
      status: "RESOURCE_EXHAUSTED",
      message: expect.stringContaining("3 requests"),
    });
    const headers = { "x-api-key": service.credentials.api_key };
    expect((await fetch(`${service.url}/v1beta/models`, { headers, method: "HEAD" })).status).toBe(200);
    clock.advance(10_000);
    expect(await statusOf(service)).toEqual([200, null]);
    expect(await statusOf(service)).toEqual([429, "50"]);
  });

  it("[RT-14] bound how many requests run at once", async () => {
    const end = gate();
    const provider = new FakeProvider();
    provider.answer = () => end.promise.then(() => tinyPng()).then((png) => made(png));
    const config = { limits: { concurrentRequests: 2 } };
    const service = await startTestService({ workers: false, providers: [provider], config });
    const running = [generate(service, content("1")), generate(service, content("2"))];
    await expect.poll(() => provider.running).toBe(2);
    expect(await statusOf(service)).toEqual([429, "1"]);
    end.open();
    for (const answer of running) expect(imagesOf(await answerOf(await answer))).toHaveLength(1);
    await expect.poll(() => statusOf(service)).toEqual([200, null]);
  });

  it("[RT-14] can be switched off", async () => {
    const config = { limits: { concurrentRequests: 0, requestsPerMinute: 0 } };
    const service = await startTestService({ workers: false, config });
    const answers = await Promise.all(Array.from({ length: 20 }, () => statusOf(service)));
    expect(new Set(answers.map(([status]) => status))).toEqual(new Set([200]));
  });
});
