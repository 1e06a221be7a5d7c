import { describe, expect, it } from "vitest";
import { ProviderError } from "../../src/domain/ports/image-provider.ts";
import { FakeClock, SetbackClock } from "../support/fake-clock.ts";
import { FakeProvider, FakeUpstream, made, tinyPng, troubled } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { content, errorOf, generate, imagePart } from "../support/realtime.ts";
import { items, MODEL, otherKey, startTestService, type TestService } from "../support/service.ts";

const SECOND_MS = 1000;
const HOUR_MS = 3_600_000;
const MARK = "may be paid twice";

const MODELS = [{ id: MODEL, prices: { "1K": 0 } }];

/** A service whose images cost nothing, so that no account needs money. */
function start(
  providers: readonly FakeProvider[],
  options: { clock?: FakeClock; data?: string; outageHours?: number; unknownOutcome?: "stop" | "once" } = {},
) {
  const { outageHours = 24, unknownOutcome = "stop", ...rest } = options;
  const limits = { outageHours, unknownOutcome };
  return startTestService({ providers, config: { models: MODELS, limits }, ...rest });
}

/** Lets time pass until the batch has ended. */
async function untilEnded(service: TestService, id: string, clock: FakeClock) {
  await expect
    .poll(
      async () => {
        clock.advance(SECOND_MS);
        return (await service.batch(id)).status;
      },
      { interval: 5 },
    )
    .toBe("completed");
  return service.batch(id);
}

describe("an upstream that cannot be used", () => {
  it("what it says reaches the owner of the service, and no other key", async () => {
    const upstream = new FakeUpstream("vendor");
    const said = "Quota exceeded for metric images.";
    upstream.answer = () => Promise.reject(troubled("limited", { retryAfterMs: 90 * SECOND_MS, said }));
    const service = await start([upstream], { clock: new FakeClock() });
    const { headers } = await otherKey(service);
    const own = await service.submit({ model: MODEL, items: items(1) });
    const body = JSON.stringify({ model: MODEL, items: items(1) });
    const init = { method: "POST", headers: { ...headers, "content-type": "application/json" }, body };
    const theirs = await (await fetch(`${service.url}/v1/images/batches`, init)).json();
    await expect.poll(async () => (await service.batch(own.id)).waiting).toMatchObject({ said });
    const shown = async () =>
      (await (await fetch(`${service.url}/v1/images/batches/${theirs.id}`, { headers })).json()).waiting;
    await expect.poll(shown).toMatchObject({ code: "PROVIDER_RATE_LIMITED" });
    expect(JSON.stringify(await shown())).not.toContain("Quota");
    const prompt = JSON.stringify({ contents: [{ parts: [{ text: "a fox" }] }] });
    const asked = { ...init, body: prompt };
    const answer = await fetch(`${service.url}/v1beta/models/${MODEL}:generateContent`, asked);
    expect(answer.ok).toBe(false);
    expect(await answer.text()).not.toContain("Quota");
  });

  it("[HEALTH-4] items wait, lose no try, and the batch says why and until when", async () => {
    const clock = new FakeClock();
    const upstream = new FakeUpstream("vendor");
    upstream.answer = () => Promise.reject(troubled("limited", { retryAfterMs: 90 * SECOND_MS }));
    const service = await start([upstream], { clock });
    const { id } = await service.submit({ model: MODEL, items: items(3) });
    const until = Math.ceil(clock.nowMs() / SECOND_MS) + 90;
    await expect
      .poll(async () => (await service.batch(id)).waiting)
      .toMatchObject({ code: "PROVIDER_RATE_LIMITED", until, message: expect.stringContaining("vendor") });
    const soFar = upstream.requests.length;
    clock.advance(89 * SECOND_MS);
    upstream.answer = async () => made(await tinyPng());
    expect(upstream.requests).toHaveLength(soFar);
    const ended = await untilEnded(service, id, clock);
    expect(ended).toMatchObject({ success_count: 3, waiting: null });
    await service.expectBooks();
  });

  it.each([
    ["failing", 0],
    ["unreachable", 0],
    // Twice as many as at once, and the one that goes first after the pause.
    ["ambiguous", 9],
  ] as const)("an outage (%s) costs no item", async (trouble, mostMarked) => {
    const clock = new FakeClock();
    const upstream = new FakeUpstream("vendor", { concurrency: 4 });
    const wellAtMs = clock.nowMs() + 60 * SECOND_MS;
    upstream.answer = async () => {
      if (clock.nowMs() < wellAtMs) throw troubled(trouble);
      return made(await tinyPng());
    };
    const service = await start([upstream], { clock, unknownOutcome: "once" });
    const { id } = await service.submit({ model: MODEL, items: items(20) });
    expect(await untilEnded(service, id, clock)).toMatchObject({ success_count: 20, fail_count: 0 });
    const marked = (await service.items(id)).filter(({ notes }) =>
      notes.some((note) => note.startsWith(MARK)),
    );
    expect(marked.length).toBeLessThanOrEqual(mostMarked);
    if (trouble === "ambiguous") {
      const askedTwice = Object.values(upstream.asked).filter((count) => count > 1);
      expect(askedTwice).toHaveLength(marked.length);
      expect(Math.max(...askedTwice)).toBe(2);
    }
    expect(upstream.requests.length).toBeLessThan(60);
  });

  it("[UNKNOWN-1] after a lost answer nothing is asked again: the item has no known outcome, and what it may cost", async () => {
    const upstream = new FakeUpstream("vendor");
    upstream.answer = async ({ prompt }) => {
      if (prompt.endsWith("1")) throw troubled("ambiguous");
      return made(await tinyPng());
    };
    const other = new FakeUpstream("other");
    const service = await startTestService({ providers: [upstream, other] });
    const consent = { "x-imgbatch-max-cost": "1" };
    const { id } = await service.submit({ model: MODEL, items: items(3) }, consent);
    expect(await service.until(id)).toMatchObject({ success_count: 2, fail_count: 1 });
    expect([upstream.requests.length, other.requests.length]).toEqual([3, 0]);
    const [lost] = (await service.items(id)).filter(({ status }) => status === "failed");
    const message = expect.stringContaining("It is not asked for again, because it may be paid already.");
    expect(lost).toMatchObject({
      error: { code: "OUTCOME_UNKNOWN", message },
      notes: [expect.stringContaining("may be billed")],
      may_be_billed: 0.0335,
    });
    await service.expectBooks();
  });

  it("[UNKNOWN-2] an upstream that takes a key is asked again with it after a lost answer, and nothing is marked", async () => {
    const upstream = new FakeUpstream("vendor", { isRepeatable: true });
    const keys = new Map<string, (string | undefined)[]>();
    upstream.answer = async ({ prompt, repeatKey }) => {
      keys.set(prompt, [...(keys.get(prompt) ?? []), repeatKey]);
      if (keys.get(prompt)?.length === 1) throw troubled("ambiguous");
      return made(await tinyPng());
    };
    const clock = new FakeClock();
    const service = await start([upstream], { clock });
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    expect(await untilEnded(service, id, clock)).toMatchObject({ success_count: 2 });
    const [one, two] = [...keys.values()];
    expect([one?.length, two?.length, new Set(one).size, new Set(two).size]).toEqual([2, 2, 1, 1]);
    expect(one?.[0]).not.toBe(two?.[0]);
    expect(JSON.stringify(await service.items(id))).not.toContain(MARK);
  });

  it("[HEALTH-6] a refusal is final, and never given to another provider", async () => {
    const first = new FakeUpstream("first");
    const second = new FakeUpstream("second");
    first.answer = () => Promise.reject(new ProviderError("SAFETY_BLOCKED", "no"));
    const service = await start([first, second]);
    const { id } = await service.submit({ model: MODEL, items: items(6) });
    expect(await service.until(id)).toMatchObject({ fail_count: 6 });
    expect([first.requests.length, second.requests.length]).toEqual([6, 0]);
  });

  it("after the longest wait the items fail with the reason", async () => {
    const clock = new FakeClock();
    const upstream = new FakeUpstream("vendor");
    upstream.answer = () => Promise.reject(troubled("credential"));
    const service = await start([upstream], { clock, outageHours: 2 });
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    await expect.poll(async () => (await service.batch(id)).waiting).toMatchObject({ until: null });
    clock.advance(HOUR_MS);
    expect(await service.batch(id)).toMatchObject({ status: "running" });
    clock.advance(HOUR_MS + 1);
    expect(await untilEnded(service, id, clock)).toMatchObject({ success_count: 0, fail_count: 2 });
    const [item] = await service.items(id);
    expect(item?.error).toMatchObject({ source: "provider", message: expect.stringContaining("credential") });
    await service.expectBooks();
  });

  it("the wait begins anew after a success", async () => {
    const clock = new FakeClock();
    const upstream = new FakeUpstream("vendor", { concurrency: 1 });
    const limited = () => Promise.reject(troubled("limited", { retryAfterMs: 10 * SECOND_MS }));
    const hold = gate();
    upstream.answer = async () => {
      if (upstream.requests.length === 1) return limited();
      if (upstream.requests.length === 4) await hold.promise;
      return upstream.requests.length === 5 ? limited() : made(await tinyPng());
    };
    const service = await start([upstream], { clock });
    const { id } = await service.submit({ model: MODEL, items: items(6) });
    const asked = () => {
      clock.advance(SECOND_MS);
      return upstream.requests.length;
    };
    await expect.poll(asked).toBe(4);
    clock.advance(25 * HOUR_MS);
    hold.open();
    expect(await untilEnded(service, id, clock)).toMatchObject({ success_count: 6, fail_count: 0 });
  });
});

describe("several upstreams", () => {
  it("[FAILOVER-1] an item that has changed providers twice stays with its last provider", async () => {
    const first = new FakeUpstream("first");
    const second = new FakeUpstream("second");
    const answer = async () => {
      if (first.requests.length + second.requests.length < 4) throw troubled("unreachable");
      return made(await tinyPng());
    };
    first.answer = answer;
    second.answer = answer;
    const clock = new FakeClock();
    const service = await start([first, second], { clock });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await expect.poll(async () => (await service.batch(id)).waiting?.code).toBe("PROVIDER_UNREACHABLE");
    expect(await untilEnded(service, id, clock)).toMatchObject({ success_count: 1 });
    expect(first.requests.length + second.requests.length).toBe(4);
  });

  it("drawings never take over from an upstream, nor a paid upstream from a free one", async () => {
    const free = new FakeUpstream("free", { isFree: true });
    const paid = new FakeUpstream("paid");
    const drawings = new FakeProvider({ name: "drawings" });
    free.answer = () => Promise.reject(troubled("limited", { retryAfterMs: HOUR_MS }));
    const service = await start([free, paid, drawings], { clock: new FakeClock() });
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    await expect.poll(async () => (await service.batch(id)).waiting?.code).toBe("PROVIDER_RATE_LIMITED");
    expect([paid.requests.length, drawings.requests.length]).toEqual([0, 0]);
  });

  it("only a provider that takes the references is asked", async () => {
    const none = { maxReferences: 0, ratios: "any", tiers: "any" } as const;
    const blind = new FakeUpstream("blind", { takes: none });
    const able = new FakeUpstream("able");
    const service = await start([blind, able]);
    const reference = { mime_type: "image/png", data: (await tinyPng()).toString("base64") };
    const { id } = await service.submit({
      model: MODEL,
      items: [{ prompt: "a", reference_images: [reference] }],
    });
    expect(await service.until(id)).toMatchObject({ success_count: 1, provider: "able" });
    expect(blind.requests).toEqual([]);
  });

  it("one that uses the first of several references makes what no other one takes", async () => {
    const first = { maxReferences: 1, usesFirstReferences: true, ratios: "any", tiers: "any" } as const;
    const one = new FakeUpstream("one", { takes: first });
    const able = new FakeUpstream("able");
    const data = (await tinyPng()).toString("base64");
    const two = [1, 2].map(() => ({ mime_type: "image/png", data }));
    const edit = { model: MODEL, items: [{ prompt: "a", reference_images: two }] };
    for (const providers of [[one], [one, able]]) {
      const service = await start(providers);
      const { id } = await service.submit(edit);
      expect(await service.until(id)).toMatchObject({ success_count: 1, provider: providers.at(-1)?.name });
    }
    expect([one.requests.length, able.requests.length]).toEqual([1, 1]);
  });

  it("a request that no configured provider can ever make is refused, with the limit", async () => {
    const takes = { maxReferences: 1, ratios: "any", tiers: "any" } as const;
    const upstream = new FakeUpstream("vendor", { takes });
    const service = await start([upstream]);
    const data = (await tinyPng()).toString("base64");
    const two = [1, 2].map(() => ({ mime_type: "image/png", data }));
    const batch = await service.create({
      model: MODEL,
      items: [{ prompt: "a" }, { prompt: "b", reference_images: two }],
    });
    const param = "items[1].reference_images";
    expect([batch.status, await batch.json()]).toMatchObject([
      400,
      { error: { code: "BATCH_IMAGE_TOO_MANY_REFERENCE_IMAGES", param } },
    ]);
    const bytes = await tinyPng();
    const native = await generate(service, content("b", {}, [imagePart(bytes), imagePart(bytes)]));
    const message = "contents: has 2 reference images; the providers of this model take at most 1";
    expect([native.status, await errorOf(native)]).toMatchObject([400, { message }]);
    expect(upstream.requests).toEqual([]);
  });

  it("[HEALTH-7] one refusal for too many requests keeps only its item waiting, and halves what is in flight", async () => {
    const clock = new FakeClock();
    const limited = troubled("limited", { retryAfterMs: 10 * SECOND_MS });
    const upstream = new FakeUpstream("vendor", { concurrency: 4 });
    const [refused, early, rest] = [gate(), gate(), gate()];
    upstream.answer = async () => {
      const at = upstream.requests.length;
      if (at === 1) await refused.promise.then(() => Promise.reject(limited));
      await (at <= 4 ? early : rest).promise;
      return made(await tinyPng());
    };
    const service = await start([upstream], { clock });
    const { id } = await service.submit({ model: MODEL, items: items(20) });
    await expect.poll(() => upstream.running).toBe(4);
    refused.open();
    await expect.poll(() => upstream.running).toBe(3);
    early.open();
    await expect.poll(async () => (await service.batch(id)).success_count).toBe(3);
    // Two at once after the cut, and a third one after two successes: the requests of before the cut have had three.
    await expect.poll(() => upstream.requests.length).toBe(7);
    expect(upstream.running).toBe(3);
    rest.open();
    await expect.poll(async () => (await service.batch(id)).success_count).toBe(19);
    expect((await service.batch(id)).waiting).toBeNull();
    expect(upstream.requests).toHaveLength(20);
    clock.advance(10 * SECOND_MS);
    expect(await untilEnded(service, id, clock)).toMatchObject({ success_count: 20 });
    expect(upstream.requests).toHaveLength(21);
  });

  it("[HEALTH-7] refusals of every request end in a pause after few requests; a quota of a minute pauses at once", async () => {
    for (const [retryAfterMs, most] of [
      [10 * SECOND_MS, 7],
      [40 * SECOND_MS, 4],
    ] as const) {
      const upstream = new FakeUpstream("vendor", { concurrency: 4 });
      upstream.answer = () => Promise.reject(troubled("limited", { retryAfterMs }));
      const service = await start([upstream], { clock: new FakeClock() });
      const { id } = await service.submit({ model: MODEL, items: items(20) });
      await expect.poll(async () => (await service.batch(id)).waiting?.code).toBe("PROVIDER_RATE_LIMITED");
      await expect.poll(() => upstream.running).toBe(0);
      expect(upstream.requests.length).toBeLessThanOrEqual(most);
    }
  });

  it("[HEALTH-10] a batch tells of a day's quota also when images that were on their way come after it", async () => {
    const upstream = new FakeUpstream("vendor", { concurrency: 2 });
    const rest = gate();
    upstream.answer = async () => {
      if (upstream.requests.length === 1) throw troubled("limited", { retryAfterMs: 10 * HOUR_MS });
      await rest.promise;
      return made(await tinyPng());
    };
    const service = await start([upstream], { clock: new FakeClock() });
    const { id } = await service.submit({ model: MODEL, items: items(6) });
    const shown = async () => (await service.batch(id)).waiting?.code;
    await expect.poll(shown).toBe("PROVIDER_RATE_LIMITED");
    rest.open();
    await expect.poll(async () => (await service.batch(id)).success_count).toBe(1);
    await expect.poll(shown).toBe("PROVIDER_RATE_LIMITED");
    expect(upstream.requests).toHaveLength(2);
  });

  it.each(["the same process", "a later process"])(
    "[HEALTH-9] %s tries an item again that failed while the clock was ahead",
    async (process) => {
      const clock = new SetbackClock();
      const upstream = new FakeUpstream("vendor", { concurrency: 1 });
      upstream.answer = async () => {
        if (upstream.requests.length === 1) throw troubled("failing");
        return made(await tinyPng());
      };
      clock.set(400 * 24 * HOUR_MS);
      const first = await start([upstream], { clock });
      const { id } = await first.submit({ model: MODEL, items: items(1) });
      await expect.poll(() => upstream.requests.length).toBe(1);
      await expect.poll(() => upstream.running).toBe(0);
      if (process === "a later process") await first.close(0);
      clock.set(-400 * 24 * HOUR_MS);
      const { data } = first;
      const service = process === "a later process" ? await start([upstream], { clock, data }) : first;
      expect(await untilEnded(service, id, clock)).toMatchObject({ success_count: 1 });
    },
  );

  it("after a pause one item goes first", async () => {
    const clock = new FakeClock();
    const upstream = new FakeUpstream("vendor", { concurrency: 4 });
    upstream.answer = () => Promise.reject(troubled("limited", { retryAfterMs: 30 * SECOND_MS }));
    const service = await start([upstream], { clock });
    const { id } = await service.submit({ model: MODEL, items: items(8) });
    await expect.poll(async () => (await service.batch(id)).waiting?.code).toBe("PROVIDER_RATE_LIMITED");
    await expect.poll(() => upstream.running).toBe(0);
    const before = upstream.requests.length;
    const [probe, others] = [gate(), gate()];
    upstream.answer = async () => {
      await (upstream.requests.length === before + 1 ? probe : others).promise;
      return made(await tinyPng());
    };
    clock.advance(30 * SECOND_MS);
    const asked = () => {
      // The batch may begin to wait only now.
      clock.advance(1);
      return upstream.requests.length;
    };
    await expect.poll(asked).toBe(before + 1);
    clock.advance(SECOND_MS);
    expect(upstream.running).toBe(1);
    probe.open();
    await expect.poll(() => upstream.running).toBe(4);
    others.open();
    expect(await untilEnded(service, id, clock)).toMatchObject({ success_count: 8 });
  });
});
