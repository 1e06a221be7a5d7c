import { describe, expect, it } from "vitest";
import { ProviderError } from "../../src/domain/ports/image-provider.ts";
import { FailedAuthLimit } from "../../src/server/http/limits.ts";
import { SetbackClock, wrongClock } from "../support/fake-clock.ts";
import { FakeProvider, made, tinyPng } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import {
  items,
  MODEL,
  openBeside,
  otherKey,
  startTestService,
  type TestService,
} from "../support/service.ts";

const HOUR_MS = 3_600_000;
const TEN_YEARS_MS = 10 * 365 * 24 * HOUR_MS;
const JUMPS = [
  ["an hour back", -HOUR_MS],
  ["an hour forward", HOUR_MS],
  ["ten years forward", TEN_YEARS_MS],
  ["ten years back", -TEN_YEARS_MS],
] as const;

/** Checks what must be true of an ended batch, whatever the clock did meanwhile. */
async function expectSound(service: TestService, id: string, count: number) {
  const batch = await service.batch(id);
  expect(batch).toMatchObject({ status: "completed", success_count: count, fail_count: 0 });
  expect(batch.settled_at).toBeGreaterThanOrEqual(batch.created_at);
  expect(batch.expires_at).toBeGreaterThanOrEqual((batch.settled_at ?? 0) + 71 * 3600);
  const { stores } = await openBeside(service.data);
  for (const { atMs } of await stores.read.batches.events(id)) {
    expect(Math.floor(atMs / 1000)).toBeGreaterThanOrEqual(batch.created_at);
  }
  await service.expectBooks();
}

describe("a clock that is set", () => {
  it.each(JUMPS)(
    "[CLOCK-1] %s while a batch runs: every image once, no time before the start",
    async (_, jump) => {
      const clock = wrongClock(0);
      const third = gate();
      const provider = new FakeProvider({ concurrency: 1 });
      provider.answer = async ({ prompt }) => {
        if (prompt === "picture 3") {
          clock.byMs += jump;
          third.open();
        }
        return made(await tinyPng(Number(prompt.split(" ")[1])));
      };
      const service = await startTestService({ providers: [provider], clock });
      const { id } = await service.submit({ model: MODEL, items: items(5) });
      await third.promise;
      await service.until(id);
      expect(provider.requests.map(({ prompt }) => prompt).sort()).toEqual(
        items(5).map(({ prompt }) => prompt),
      );
      await expectSound(service, id, 5);
    },
  );

  it.each(JUMPS)("[CLOCK-1] %s between two runs: the next one goes on", async (_, jump) => {
    const provider = new FakeProvider({ concurrency: 1 });
    const second = gate();
    provider.answer = async ({ prompt }, signal) => {
      if (prompt === "picture 2") {
        second.open();
        await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      }
      return made(await tinyPng());
    };
    const first = await startTestService({ providers: [provider] });
    const { id } = await first.submit({ model: MODEL, items: items(3) });
    await second.promise;
    await first.close(0);
    const next = new FakeProvider();
    const later = await startTestService({ data: first.data, providers: [next], clock: wrongClock(jump) });
    await later.until(id);
    expect(next.requests.map(({ prompt }) => prompt)).toEqual(["picture 2", "picture 3"]);
    await expectSound(later, id, 3);
  });

  it("[CLOCK-1] back during the pause before a retry does not make the pause longer", async () => {
    const clock = new SetbackClock();
    const provider = new FakeProvider();
    let tries = 0;
    provider.answer = async () => {
      if (tries++ < 2) throw new ProviderError("PROVIDER_TIMEOUT", "too slow");
      return made(await tinyPng());
    };
    const service = await startTestService({ providers: [provider], clock });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    for (const attempt of [1, 2]) {
      await expect.poll(() => clock.nextWakeInMs).toBe(attempt * 500);
      clock.set(-HOUR_MS);
      clock.advance(attempt * 500);
    }
    await service.until(id);
    await expectSound(service, id, 1);
    expect(tries).toBe(3);
  });

  it("[CLOCK-1] far back between two runs makes no pause longer", async () => {
    const before = new SetbackClock();
    const provider = new FakeProvider();
    provider.answer = () =>
      Promise.reject(new ProviderError("PROVIDER_RATE_LIMITED", "wait", { retryAfterMs: 60_000 }));
    const first = await startTestService({ providers: [provider], clock: before });
    const { id } = await first.submit({ model: MODEL, items: items(1) });
    await expect.poll(() => before.nextWakeInMs).toBe(60_000);
    await first.close(0);
    const clock = new SetbackClock(before.nowMs() - TEN_YEARS_MS);
    const config = { retention: { sweepMinutes: 600 } };
    const second = await startTestService({ data: first.data, clock, config });
    await second.until(id);
    await expectSound(second, id, 1);
  });

  it("forward while the service runs deletes nothing before it has held still", async () => {
    const clock = new SetbackClock();
    const service = await startTestService({ clock });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await service.until(id);
    await expect.poll(() => clock.sleeperCount).toBe(1);
    clock.set(TEN_YEARS_MS);
    clock.advance(30 * 60_000);
    await expect.poll(() => clock.nextWakeInMs).toBe(30 * 60_000);
    expect((await service.batch(id)).status).toBe("completed");
    clock.set(-TEN_YEARS_MS);
    clock.advance(30 * 60_000);
    await expect.poll(() => clock.nextWakeInMs).toBe(30 * 60_000);
    expect((await service.batch(id)).status).toBe("completed");
    clock.set(72 * HOUR_MS);
    clock.advance(30 * 60_000);
    await expect.poll(() => clock.nextWakeInMs).toBe(30 * 60_000);
    clock.advance(30 * 60_000);
    await service.until(id, "output_deleted");
  });

  it("back and forth between batches: a page shows each once, in an order that stays", async () => {
    const clock = wrongClock(0);
    const service = await startTestService({ clock });
    const ids: string[] = [];
    for (const jump of [0, -HOUR_MS, 2 * HOUR_MS, -HOUR_MS, 0, -TEN_YEARS_MS]) {
      clock.byMs += jump;
      ids.push((await service.submit({ model: MODEL, items: items(1) })).id);
    }
    const page = async (query: string) =>
      (await (await service.ask(`?limit=2${query}`)).json()) as {
        data: { id: string; created_at: number }[];
        next_cursor: string | null;
      };
    const seen: { id: string; created_at: number }[] = [];
    let cursor = "";
    do {
      const { data, next_cursor } = await page(cursor);
      seen.push(...data);
      cursor = next_cursor === null ? "" : `&cursor=${next_cursor}`;
      // A batch made meanwhile, at any time, moves no later one out of its place.
      clock.byMs += seen.length % 4 === 0 ? TEN_YEARS_MS : HOUR_MS;
      await service.submit({ model: MODEL, items: items(1) });
    } while (cursor !== "");
    expect(
      seen
        .filter(({ id }) => ids.includes(id))
        .map(({ id }) => id)
        .sort(),
    ).toEqual([...ids].sort());
    const times = seen.map(({ created_at }) => created_at);
    expect(times).toEqual([...times].sort((a, b) => b - a));
  });

  it("to a stop: batches of one moment are listed in the order in which they were made", async () => {
    const service = await startTestService({ clock: new SetbackClock() });
    const ids: string[] = [];
    for (let i = 0; i < 5; i++) ids.push((await service.submit({ model: MODEL, items: items(1) })).id);
    const { data } = (await (await service.ask("")).json()) as { data: { id: string }[] };
    expect(data.map(({ id }) => id)).toEqual(ids.reverse());
  });

  it("at any moment: how long to wait after wrong keys is from a second to a minute", () => {
    const clock = new SetbackClock();
    const limit = new FailedAuthLimit(1, clock, { countsLoopback: false });
    const waits: number[] = [];
    for (const jump of [0, 0, -HOUR_MS, 0, HOUR_MS, 59_999, 0, -1, TEN_YEARS_MS, 0, -TEN_YEARS_MS, 0]) {
      clock.set(jump);
      try {
        limit.note("192.0.2.1");
      } catch (error) {
        waits.push((error as { retryAfterMs: number }).retryAfterMs);
      }
    }
    expect(waits.length).toBeGreaterThan(4);
    for (const wait of waits) {
      expect(Math.ceil(wait / 1000)).toBeGreaterThanOrEqual(1);
      expect(wait).toBeLessThanOrEqual(60_000);
    }
  });

  it("past the end of a key, or before it: the key is refused and accepted by the time that it is", async () => {
    const clock = new SetbackClock();
    const service = await startTestService({ workers: false, clock });
    const { headers } = await otherKey(service, { expiresAtMs: clock.nowMs() + HOUR_MS, clock });
    const statusNow = async () => {
      const answer = await service.ask("/models", { headers });
      await answer.arrayBuffer();
      return answer.status;
    };
    expect(await statusNow()).toBe(200);
    clock.set(HOUR_MS);
    expect(await statusNow()).toBe(401);
    clock.set(-1);
    expect(await statusNow()).toBe(200);
  });
});
