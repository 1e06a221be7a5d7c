import { describe, expect, it } from "vitest";
import { topUp } from "../../../src/domain/accounts.ts";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { randomIds } from "../../../src/kernel/ids.ts";
import { TEST_STORES } from "../../support/cluster/test-stores.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeProvider, FakeUpstream, made, tinyPng, troubled } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { content, errorOf, generate, imagePart, refusalOf } from "../../support/realtime.ts";
import { MODEL, openBeside, otherKey, startTestService } from "../../support/service.ts";

const PRICE = 67_000;
const START_MICRO_USD = 1_000_000_000;
/** Consent of the local key to what an upstream costs. */
const CONSENT = { "x-imgbatch-max-cost": "1" };
/** A request whose answer was lost is sent once more. */
const ONCE = { limits: { unknownOutcome: "once" } };

const keyed = (key = "k1", more: Record<string, string> = {}) => ({
  headers: { "idempotency-key": key, ...more },
});

const lostAnswer = () =>
  new ProviderError("PROVIDER_ITEM_FAILED", "the connection broke", { trouble: "ambiguous" });

/** `[status, whether it is a replay, body]` */
async function answerTo(answer: Response): Promise<[number, string | null, string]> {
  return [answer.status, answer.headers.get("idempotency-replayed"), await answer.text()];
}

/**
 * Expects something of a repeat after a jump of the clock. Beside others, a process sends nothing after a jump until its
 * next heartbeat, so there it is repeated until it holds.
 */
const expectOfRepeat = <T>(repeat: () => Promise<T>) =>
  TEST_STORES === "local" ? expect(repeat()).resolves : expect.poll(repeat);

async function expectCharges(data: string, images: number): Promise<void> {
  const { stores, blobs } = await openBeside(data);
  await expect.poll(() => stores.read.realtimeHolds.list()).toEqual([]);
  expect(await stores.read.accounts.byName("default")).toMatchObject({
    balanceMicroUsd: START_MICRO_USD - images * PRICE,
    heldMicroUsd: 0,
  });
  expect(await stores.read.usage.count()).toBe(images);
  expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
}

/** A provider whose next image waits for a gate, and another picture each time. */
function gated<P extends FakeProvider>(provider: P) {
  const asked = gate();
  const end = gate();
  let images = 0;
  provider.answer = async () => {
    asked.open();
    await end.promise;
    return made(await tinyPng(++images));
  };
  return { provider, asked: asked.promise, end: () => end.open() };
}

describe("a real-time request with an idempotency key", () => {
  it("[ONCE-1] is answered once: a repeat gets the same bytes without another charge, also after a restart", async () => {
    const { provider, end } = gated(new FakeProvider());
    end();
    const service = await startTestService({ providers: [provider] });
    const first = await answerTo(await generate(service, content("x"), keyed()));
    expect(first.slice(0, 2)).toEqual([200, "false"]);
    const repeat = await answerTo(await generate(service, content("x"), keyed()));
    expect(repeat).toEqual([200, "true", first[2]]);
    await service.close(0);
    const next = await startTestService({ data: service.data, providers: [provider] });
    const written = { ...content("x"), labels: "are ignored" };
    expect(await answerTo(await generate(next, written, keyed()))).toEqual([200, "true", first[2]]);
    expect(provider.requests).toHaveLength(1);
    expect((await answerTo(await generate(next, content("x"), keyed("k2"))))[2]).not.toBe(first[2]);
    const without = await answerTo(await generate(next, content("x")));
    expect(without.slice(0, 2)).toEqual([200, null]);
    await expectCharges(service.data, 3);
  });

  it("that comes ten times at once makes one image, and all get it, also where a key may run one request", async () => {
    const { provider, asked, end } = gated(new FakeProvider());
    const config = { limits: { concurrentRequests: 1 } };
    const service = await startTestService({ workers: false, providers: [provider], config });
    // With open connections, requests come at the same moment.
    await Promise.all(Array.from({ length: 10 }, () => generate(service, {}).then((each) => each.text())));
    const pending = Array.from({ length: 10 }, () => generate(service, content("x"), keyed()));
    await asked;
    end();
    const answers = await Promise.all((await Promise.all(pending)).map(answerTo));
    expect(new Set(answers.map(([status, , body]) => `${status} ${body}`)).size).toBe(1);
    expect(answers.map(([, replayed]) => replayed).sort()).toEqual(["false", ...Array(9).fill("true")]);
    expect(provider.requests).toHaveLength(1);
    await expectCharges(service.data, 1);
  });

  it("goes on when its caller leaves, and the repeat gets what was made", async () => {
    const { provider, asked, end } = gated(new FakeProvider());
    const service = await startTestService({ workers: false, providers: [provider] });
    const picture = imagePart(await tinyPng(7));
    const caller = new AbortController();
    const { signal } = caller;
    const lost = generate(service, content("x", {}, [picture]), { ...keyed(), signal });
    await asked;
    caller.abort();
    await expect(lost).rejects.toThrow();
    const impatient = new AbortController();
    const waiting = generate(service, content("x", {}, [picture]), {
      ...keyed(),
      signal: impatient.signal,
    });
    const patient = generate(service, content("x", {}, [picture]), keyed());
    await expect.poll(() => provider.running).toBe(1);
    impatient.abort();
    await expect(waiting).rejects.toThrow();
    end();
    expect((await answerTo(await patient)).slice(0, 2)).toEqual([200, "true"]);
    expect(provider.requests).toHaveLength(1);
    await expectCharges(service.data, 1);
  });

  it("is refused when its key was used with another request, before and after that has finished", async () => {
    const { provider, asked, end } = gated(new FakeProvider());
    const service = await startTestService({ workers: false, providers: [provider] });
    const first = generate(service, content("x", { aspectRatio: "1:1" }), keyed());
    await asked;
    const others = () =>
      Promise.all([
        generate(service, content("y"), keyed()),
        generate(service, content("x", { aspectRatio: "16:9" }), keyed()),
        generate(service, content("x"), { ...keyed(), verb: "streamGenerateContent?alt=sse" }),
        generate(service, content("x"), { ...keyed(), model: "vendorx-3-pro-image" }),
      ]);
    const early = await others();
    end();
    await (await first).text();
    for (const answer of [...early, ...(await others())]) {
      expect(answer.status).toBe(409);
      expect(await errorOf(answer)).toMatchObject({
        status: "ABORTED",
        details: [expect.objectContaining({ reason: "REALTIME_IDEMPOTENCY_CONFLICT" })],
      });
    }
    const other = await otherKey(service);
    const ofAnother = await generate(service, content("y"), keyed("k1", { "x-vendorx-api-key": other.key }));
    expect((await answerTo(ofAnother)).slice(0, 2)).toEqual([200, "false"]);
    // A default may be left out.
    expect((await answerTo(await generate(service, content("x"), keyed()))).slice(0, 2)).toEqual([
      200,
      "true",
    ]);
    await expectCharges(service.data, 2);
  });

  it("needs a key of 1 to 255 printable characters", async () => {
    const service = await startTestService({ workers: false });
    for (const key of ["", "x".repeat(256), "caf\u00e9"]) {
      const refused = await generate(service, content("x"), keyed(key));
      expect(await refusalOf(refused)).toEqual([400, "INVALID_ARGUMENT", "Idempotency-Key"]);
    }
    expect((await generate(service, content("x"), keyed("x".repeat(255)))).status).toBe(200);
  });

  it("repeats a refusal and a missing image, which cost nothing", async () => {
    const provider = new FakeProvider();
    const service = await startTestService({ workers: false, providers: [provider] });
    for (const code of ["SAFETY_BLOCKED", "EMPTY_IMAGE_OUTPUT"] as const) {
      provider.answer = () => Promise.reject(new ProviderError(code, "no"));
      const first = await answerTo(await generate(service, content("x"), keyed(code)));
      provider.answer = async () => made(await tinyPng());
      expect(await answerTo(await generate(service, content("x"), keyed(code)))).toEqual([
        200,
        "true",
        first[2],
      ]);
    }
    await expectCharges(service.data, 0);
  });

  it.each(["limited", "failing", "unreachable", "billing"] as const)(
    "runs again after an error without a charge (%s)",
    async (trouble) => {
      const clock = new FakeClock();
      const upstream = new FakeUpstream("vendor");
      const service = await startTestService({ workers: false, providers: [upstream], clock });
      upstream.answer = () => Promise.reject(troubled(trouble, { retryAfterMs: 1000 }));
      const failed = await generate(service, content("x"), keyed("k1", CONSENT));
      expect(failed.status).toBeGreaterThanOrEqual(429);
      expect(failed.headers.get("idempotency-replayed")).toBeNull();
      await failed.text();
      clock.advance(3_600_000);
      upstream.answer = async () => made(await tinyPng());
      const again = async () => answerTo(await generate(service, content("x"), keyed("k1", CONSENT)));
      await expectOfRepeat(async () => (await again()).slice(0, 2)).toEqual([200, "false"]);
      const { stores, blobs } = await openBeside(service.data);
      const calls = await stores.read.providerCalls.list({});
      expect(calls.reduce((sum, call) => sum + call.maybePaidTwice, 0)).toBe(0);
      expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
    },
  );

  it("runs again when the balance did not suffice, and when a drawing failed", async () => {
    const provider = new FakeProvider();
    const { asked, end } = gated(provider);
    const models = [{ id: MODEL, prices: { "1K": 600 } }];
    const service = await startTestService({ workers: false, providers: [provider], config: { models } });
    const other = generate(service, content("x"), keyed("other"));
    await asked;
    expect((await generate(service, content("x"), keyed())).status).toBe(402);
    provider.answer = () => Promise.reject(new ProviderError("PROVIDER_TIMEOUT", "late"));
    end();
    await (await other).text();
    const { stores } = await openBeside(service.data);
    const account = await stores.read.accounts.byName("default");
    const deps = { clock: systemClock, ids: randomIds };
    await stores.write((tx) => topUp(tx, deps, account?.id ?? "", START_MICRO_USD));
    expect((await generate(service, content("x"), keyed())).status).toBe(504);
    provider.answer = async () => made(await tinyPng());
    await expect.poll(() => stores.read.realtimeHolds.list()).toEqual([]);
    expect((await answerTo(await generate(service, content("x"), keyed()))).slice(0, 2)).toEqual([
      200,
      "false",
    ]);
  });

  it("repeats an error after which an upstream may have been paid, and asks nobody", async () => {
    const upstream = new FakeUpstream("vendor");
    upstream.answer = () => Promise.reject(troubled("ambiguous"));
    const service = await startTestService({ workers: false, providers: [upstream] });
    const first = await answerTo(await generate(service, content("x"), keyed("k1", CONSENT)));
    expect(first.slice(0, 2)).toEqual([409, "false"]);
    expect(first[2]).toContain("REALTIME_OUTCOME_UNKNOWN");
    upstream.answer = async () => made(await tinyPng());
    expect(await answerTo(await generate(service, content("x"), keyed("k1", CONSENT)))).toEqual([
      409,
      "true",
      first[2],
    ]);
    expect(upstream.requests).toHaveLength(1);
    await expectCharges(service.data, 0);
  });

  it("is sent once more by its repeat where the answer was lost and the rule is `once`, and is marked", async () => {
    const upstream = new FakeUpstream("vendor");
    upstream.answer = () => Promise.reject(lostAnswer());
    const service = await startTestService({ workers: false, providers: [upstream], config: ONCE });
    const first = await generate(service, content("x"), keyed("k1", CONSENT));
    expect(first.status).toBe(502);
    expect(await first.text()).toContain("REALTIME_PROVIDER_UNREACHABLE");
    upstream.answer = async () => made(await tinyPng());
    const second = await generate(service, content("x"), keyed("k1", CONSENT));
    expect([second.status, second.headers.get("x-imgbatch-may-be-paid-twice")]).toEqual([200, "true"]);
    expect(upstream.requests).toHaveLength(2);
    const { stores } = await openBeside(service.data);
    expect(await stores.read.usage.count()).toBe(1);
  });

  it("says when it fails after a lost answer that the request before it may be billed", async () => {
    const upstream = new FakeUpstream("vendor");
    upstream.answer = () => Promise.reject(lostAnswer());
    const service = await startTestService({ workers: false, providers: [upstream], config: ONCE });
    const ask = async () => (await generate(service, content("x"), keyed("k1", CONSENT))).text();
    expect(await ask()).not.toContain("may be billed");
    upstream.answer = () => Promise.reject(new ProviderError("PROVIDER_ITEM_FAILED", "It failed."));
    expect(await ask()).toContain(
      "It failed. The answer of an earlier request for it was lost, and that request may be billed.",
    );
  });

  it("is not sent a third time after two lost answers, and says that both may be paid", async () => {
    const upstream = new FakeUpstream("vendor");
    upstream.answer = () => Promise.reject(lostAnswer());
    const service = await startTestService({ workers: false, providers: [upstream], config: ONCE });
    const ask = () => generate(service, content("x"), keyed("k1", CONSENT));
    expect((await ask()).status).toBe(502);
    for (let repeat = 0; repeat < 2; repeat++) {
      const text = await (await ask()).text();
      expect([text, text]).toEqual([
        expect.stringContaining("REALTIME_OUTCOME_UNKNOWN"),
        expect.stringContaining("both may be paid"),
      ]);
    }
    expect(upstream.requests).toHaveLength(2);
    await expectCharges(service.data, 0);
  });

  it("[UNKNOWN-1] is not sent again when a stop ended it after it was sent, and that is counted once", async () => {
    const upstream = new FakeUpstream("vendor");
    const asked = gate();
    upstream.answer = (_, signal) => {
      asked.open();
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    };
    const service = await startTestService({ workers: false, providers: [upstream] });
    const stopped = generate(service, content("x"), keyed("k1", CONSENT));
    await asked.promise;
    await service.close(0);
    expect((await stopped).status).toBe(409);
    const options = { data: service.data, workers: false, providers: [upstream] };
    const next = await startTestService(options);
    const refused = await generate(next, content("x"), keyed("k1", CONSENT));
    expect([refused.status, refused.headers.get("x-imgbatch-may-be-paid-twice")]).toEqual([409, null]);
    expect(upstream.requests).toHaveLength(1);
    const { stores } = await openBeside(service.data);
    expect(await stores.read.providerCalls.list({})).toMatchObject([
      { requests: 1, errors: 1, images: 0, maybePaidTwice: 0 },
    ]);
    await expectCharges(service.data, 0);
  });

  it("[ONCE-6] runs again when a stop ended it; once only when an upstream may have been paid, and that is counted", async () => {
    const upstream = new FakeUpstream("vendor");
    const asked = { now: gate() };
    upstream.answer = (_, signal) => {
      asked.now.open();
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    };
    let service = await startTestService({ workers: false, providers: [upstream], config: ONCE });
    const { data } = service;
    const target = () => keyed("k1", CONSENT);
    for (let run = 0; run < 2; run++) {
      asked.now = gate();
      const stopped = generate(service, content("x"), target());
      await asked.now.promise;
      await service.close(0);
      expect((await stopped).status).toBe(503);
      service = await startTestService({ data, workers: false, providers: [upstream], config: ONCE });
    }
    const refused = await generate(service, content("x"), target());
    expect([refused.status, (await errorOf(refused)).message]).toEqual([
      409,
      expect.stringContaining("both may be paid"),
    ]);
    expect(upstream.requests).toHaveLength(2);
    await expectCharges(data, 0);
  });

  it("[ONCE-6] counts a second run as maybe paid twice, and repeats its answer", async () => {
    const upstream = new FakeUpstream("vendor");
    const asked = gate();
    upstream.answer = (_, signal) => {
      asked.open();
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    };
    const clock = new FakeClock();
    const service = await startTestService({ workers: false, providers: [upstream], clock, config: ONCE });
    const stopped = generate(service, content("x"), keyed("k1", CONSENT));
    await asked.promise;
    await service.close(0);
    await stopped;
    upstream.answer = () => Promise.reject(troubled("limited", { retryAfterMs: 1 }));
    const options = { data: service.data, workers: false, providers: [upstream], clock, config: ONCE };
    const next = await startTestService(options);
    expect((await generate(next, content("x"), keyed("k1", CONSENT))).status).toBe(429);
    upstream.answer = async () => made(await tinyPng());
    clock.advance(60_000);
    const again = async () => (await generate(next, content("x"), keyed("k1", CONSENT))).status;
    await expectOfRepeat(again).toBe(200);
    const repeat = await generate(next, content("x"), keyed("k1", CONSENT));
    expect(repeat.headers.get("x-imgbatch-may-be-paid-twice")).toBe("true");
    const [, replayed] = await answerTo(repeat);
    expect(replayed).toBe("true");
    const { stores, blobs } = await openBeside(service.data);
    const calls = await stores.read.providerCalls.list({});
    expect(calls.reduce((sum, call) => sum + call.images, 0)).toBe(1);
    expect(calls.reduce((sum, call) => sum + call.maybePaidTwice, 0)).toBe(1);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  });

  it("counts among those at work only while it works, also when its caller has left", async () => {
    const { provider, asked, end } = gated(new FakeProvider());
    const config = { limits: { concurrentRequests: 1 } };
    const service = await startTestService({ workers: false, providers: [provider], config });
    const caller = new AbortController();
    const lost = generate(service, content("x"), { ...keyed(), signal: caller.signal });
    await asked;
    caller.abort();
    await expect(lost).rejects.toThrow();
    const repeats = [1, 2, 3].map(() => generate(service, content("x"), keyed()));
    expect((await generate(service, content("y"), keyed("k2"))).status).toBe(429);
    expect((await generate(service, content("y"))).status).toBe(429);
    end();
    expect((await Promise.all(repeats)).map(({ status }) => status)).toEqual([200, 200, 200]);
    await expect.poll(async () => (await generate(service, content("y"), keyed("k2"))).status).toBe(200);
    await expectCharges(service.data, 2);
  });
});

const HOUR_MS = 3_600_000;

describe("the answers that are kept", () => {
  const retention = { inputHours: 1, outputHours: 2, sweepMinutes: 60 };

  it("are there for 24 hours, and are removed after them", async () => {
    const clock = new FakeClock();
    const { provider, end } = gated(new FakeProvider());
    end();
    const service = await startTestService({ clock, providers: [provider], config: { retention } });
    const first = await answerTo(await generate(service, content("x"), keyed()));
    const { stores, blobs } = await openBeside(service.data);
    const kept = async () => [
      (await stores.read.keyedRequests.answered()).length,
      (await blobs.list("answers/")).length,
    ];
    const sweepAfterHour = async () => {
      await expect.poll(() => clock.sleeperCount).toBe(1);
      clock.advance(HOUR_MS);
    };
    for (let hour = 0; hour < 23; hour++) await sweepAfterHour();
    await expect.poll(() => clock.sleeperCount).toBe(1);
    expect(await kept()).toEqual([1, 1]);
    expect((await answerTo(await generate(service, content("x"), keyed())))[2]).toBe(first[2]);
    for (let hour = 0; hour < 2; hour++) await sweepAfterHour();
    await expect.poll(kept).toEqual([0, 0]);
    expect((await answerTo(await generate(service, content("x"), keyed())))[1]).toBe("false");
    await expectCharges(service.data, 2);
  });

  it("are checked, and one that is missing is an error, never another charge", async () => {
    const service = await startTestService({ workers: false });
    await (await generate(service, content("x"), keyed())).text();
    const { stores, blobs } = await openBeside(service.data);
    const key = (await blobs.list("answers/"))[0]?.key ?? "";
    await blobs.put(key, Buffer.from("damaged"));
    expect((await checkInvariants(stores, blobs)).problems).toEqual([
      expect.stringContaining("the answer to its idempotency key is damaged"),
    ]);
    expect((await generate(service, content("x"), keyed())).status).toBe(500);
    await blobs.delete(key);
    expect((await checkInvariants(stores, blobs)).problems).toEqual([
      expect.stringContaining("the answer to its idempotency key is missing"),
    ]);
    expect(await stores.read.usage.count()).toBe(1);
  });
});
