import { describe, expect, it, onTestFinished } from "vitest";
import { createBatch } from "../../src/client/batches.ts";
import { deadline, followChanges, pollUntilDone } from "../../src/client/poll.ts";
import { createServiceHttp } from "../../src/client/service-http.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { FAKE_KEY, type FakeOptions, startFakeService } from "../support/fake-service.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { items, MODEL, startTestService } from "../support/service.ts";

async function bench(options: FakeOptions = {}) {
  const fake = await startFakeService(options);
  onTestFinished(() => fake.close());
  const clock = new InstantClock();
  const http = createServiceHttp({
    baseUrl: fake.url,
    apiKey: FAKE_KEY,
    clock,
    random: () => 0,
  });
  const body = JSON.stringify({ model: "m", items: [{ custom_id: "a", prompt: "a" }] });
  const { batch } = await createBatch(http, body, "k");
  const poll = (more: object = {}) =>
    pollUntilDone(batch.id, { http, clock, random: () => 0.5, isLocal: false, ...more });
  return { fake, clock, batch, poll };
}

it("polling ends with a terminal status, and an unknown one is never the end", async () => {
  const { clock, poll } = await bench({
    statuses: ["queued", "dreaming", "running", "settling", "completed"],
  });
  const seen: string[] = [];
  const batch = await poll({ onLook: (look: { status: string }) => seen.push(look.status) });
  expect(batch.status).toBe("completed");
  expect(seen).toEqual(["queued", "dreaming", "running", "settling", "completed"]);
  expect(clock.sleepsMs).toEqual([12_500, 12_500, 12_500, 12_500]);
});

it("what may pass is waited out without a new submission, and a Retry-After beats the pace", async () => {
  const { fake, clock, poll } = await bench({ statuses: ["completed"] });
  const retry = { status: 429, headers: { "retry-after": "90" }, body: "" };
  fake.fault(/^GET/, { reset: "before" }, { status: 503, body: "" }, retry);
  await poll();
  expect(clock.sleepsMs).toEqual([12_500, 12_500, 90_000]);
  expect(fake.count(/^POST/)).toBe(1);
});

it("over an hour the looks follow the schedule, whatever the service answers", async () => {
  const { clock, poll } = await bench({
    statuses: [...Array.from({ length: 200 }, () => "running")],
  });
  const startMs = clock.nowMs();
  const looksAt: number[] = [];
  const stop = new AbortController();
  const onLook = () => {
    looksAt.push((clock.nowMs() - startMs) / 1000);
    if (clock.nowMs() - startMs > 3_600_000) stop.abort(new Error("enough"));
  };
  await expect(poll({ onLook, signal: stop.signal })).rejects.toThrow("enough");
  const gaps = looksAt.slice(1).map((at, i) => ({ from: looksAt[i] ?? 0, gap: at - (looksAt[i] ?? 0) }));
  const between = (fromS: number, toS: number) =>
    gaps.filter(({ from }) => from >= fromS && from < toS).map(({ gap }) => gap);
  expect(between(0, 120).every((gap) => gap >= 10 && gap <= 15)).toBe(true);
  expect(between(120, 600).every((gap) => gap === 30)).toBe(true);
  const rising = between(600, 1800);
  expect(rising).toEqual(rising.toSorted((a, b) => a - b));
  expect(between(1800, 3600).every((gap) => gap === 60)).toBe(true);
});

it("a Retry-After of nothing makes no storm, and one of a day no sleeper", async () => {
  const { fake, clock, poll } = await bench({ statuses: ["completed"] });
  const asks = (value: string) => ({ status: 503, headers: { "retry-after": value }, body: "" });
  fake.fault(/^GET/, asks("0"), asks("Thu, 01 Jan 1970 00:00:00 GMT"), asks("86400"));
  await poll();
  expect(clock.sleepsMs).toEqual([1_000, 1_000, 3_600_000]);
});

it("an error that cannot pass ends the polling, and an outage does after eight minutes", async () => {
  const { fake, clock, poll } = await bench();
  fake.fault(/^GET/, { status: 401, body: "" });
  await expect(poll()).rejects.toMatchObject({ code: "INVALID_API_KEY" });
  fake.fault(/^GET/, ...Array.from({ length: 100 }, () => ({ status: 503, body: "" })));
  const startMs = clock.nowMs();
  const until = new Set<number>();
  await expect(
    poll({ onFailure: (_: Error, __: number, ms: number) => until.add(ms) }),
  ).rejects.toMatchObject({
    httpStatus: 503,
  });
  expect([...until]).toEqual([startMs + 480_000]);
  expect(clock.nowMs() - startMs).toBeGreaterThanOrEqual(480_000);
  expect(clock.nowMs() - startMs).toBeLessThan(540_000);
});

it("a pause that the service asks for does not shorten the time for which an outage is waited out", async () => {
  const { fake, clock, poll } = await bench({ statuses: ["completed"] });
  const away = { status: 503, headers: { "retry-after": "3000" }, body: "" };
  fake.fault(/^GET/, away, away, away);
  const left: number[] = [];
  await poll({
    onFailure: (_: Error, delayMs: number, ms: number) => left.push(ms - clock.nowMs() - delayMs),
  });
  expect(left).toEqual([480_000, 480_000, 480_000]);
});

it("an outage ends after a day, however long the pauses are that the service asks for", async () => {
  const { fake, clock, poll } = await bench();
  const away = { status: 503, headers: { "retry-after": "3600" }, body: "" };
  fake.fault(/^GET/, ...Array.from({ length: 100 }, () => away));
  const startMs = clock.nowMs();
  await expect(poll()).rejects.toMatchObject({ httpStatus: 503 });
  expect(clock.nowMs() - startMs).toBe(24 * 3_600_000);
});

it("foreign pages are waited out like a broken network, and reported as such if they stay", async () => {
  const { fake, clock, poll } = await bench({ statuses: ["completed"] });
  const signIn = { status: 200, body: "<html>Sign in" };
  const away = { status: 302, headers: { location: "https://portal.example/login?next=x" }, body: "" };
  fake.fault(/^GET/, signIn, away);
  expect((await poll()).status).toBe("completed");
  expect(clock.sleepsMs).toEqual([12_500, 12_500]);
  fake.fault(/^GET/, ...Array.from({ length: 100 }, () => away));
  await expect(poll()).rejects.toMatchObject({
    code: "BAD_RESPONSE",
    message: expect.stringMatching(/not the service.*https:\/\/portal\.example\/login\./),
  });
});

it("the deadline ends a sleep and a silent request with TIMEOUT", async () => {
  const { fake, batch } = await bench({ statuses: ["running"] });
  const http = createServiceHttp({
    baseUrl: fake.url,
    apiKey: FAKE_KEY,
    clock: new InstantClock(),
    random: () => 0,
  });
  for (const isSilent of [false, true]) {
    const clock = new FakeClock();
    const limit = deadline(clock, 5_000);
    if (isSilent) fake.fault(/^GET/, { silent: true });
    const polling = pollUntilDone(batch.id, {
      http,
      clock,
      random: () => 0,
      isLocal: false,
      signal: limit.signal,
    });
    const outcome = expect(polling).rejects.toMatchObject({ code: "TIMEOUT" });
    await expect.poll(() => fake.count(/^GET/) > 0 && (isSilent || clock.sleeperCount === 2)).toBe(true);
    clock.advance(5_000);
    await outcome;
    limit.stop();
    fake.requests.length = 0;
  }
});

const HOUR_MS = 3_600_000;
const httpTo = (baseUrl: string, apiKey: string) =>
  createServiceHttp({ baseUrl, apiKey, clock: systemClock, random: Math.random });

function follow(http: ReturnType<typeof httpTo>, clock: FakeClock) {
  const changes = followChanges({ http, isLocal: false }, clock, undefined);
  if (changes === null) throw new Error("A service elsewhere is followed.");
  onTestFinished(() => changes.stop());
  return changes;
}

describe("the changes of a service elsewhere", () => {
  it("end a sleep when the batch changes, also one that had changed before it, but not within a second", async () => {
    const service = await startTestService();
    await service.setPaused(true);
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    const clock = new FakeClock();
    const changes = follow(httpTo(service.url, service.credentials.api_key), clock);
    const other = changes.sleep("imgbatch_other", HOUR_MS).then(() => "woken");
    const slept = changes.sleep(id, HOUR_MS);
    const nudge = setInterval(
      () => service.feed.publish({ type: "batch", batchId: id, status: "queued" }),
      200,
    );
    onTestFinished(() => clearInterval(nudge));
    const pause = () => new Promise((resolve) => setTimeout(resolve, 600)).then(() => "asleep");
    expect(await Promise.race([slept, pause()])).toBe("asleep");
    clock.advance(1000);
    await slept;
    await pause();
    const again = changes.sleep(id, HOUR_MS);
    clock.advance(1000);
    await again;
    expect(await Promise.race([other, "asleep"])).toBe("asleep");
    clock.advance(HOUR_MS);
    expect(await other).toBe("woken");
  });

  it("are no help where the service has none: a sleep takes its time, and ends with its signal", async () => {
    const fake = await startFakeService();
    onTestFinished(() => fake.close());
    const clock = new FakeClock();
    const changes = follow(httpTo(fake.url, FAKE_KEY), clock);
    await expect.poll(() => fake.count(/^GET \/v1\/events/)).toBe(1);
    const slept = changes.sleep("imgbatch_1", 10_000);
    clock.advance(1000);
    await new Promise(setImmediate);
    clock.advance(9000);
    await slept;
    const stop = new AbortController();
    const stopped = changes.sleep("imgbatch_1", 10_000, stop.signal);
    stop.abort(new Error("stopped"));
    await expect(stopped).rejects.toThrow("stopped");
    clock.advance(HOUR_MS);
    expect(fake.count(/^GET \/v1\/events/)).toBe(1);
  });

  it("are not followed on this machine, nor with a fixed interval", async () => {
    const http = httpTo("http://127.0.0.1:1", FAKE_KEY);
    expect(followChanges({ http, isLocal: true }, systemClock, undefined)).toBeNull();
    expect(followChanges({ http, isLocal: false }, systemClock, 10_000)).toBeNull();
  });
});
