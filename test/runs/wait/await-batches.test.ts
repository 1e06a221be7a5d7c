import { expect, it } from "vitest";
import { type Batch, readBatch } from "../../../src/client/wire/read-batch.ts";
import { ImgbatchError } from "../../../src/contract/errors.ts";
import type { Http, HttpRequest } from "../../../src/http/http.ts";
import type { JsonAnswer } from "../../../src/http/json-answer.ts";
import { type AwaitOptions, awaitBatches } from "../../../src/runs/wait/await-batches.ts";
import { FakeClock } from "../../support/fake-clock.ts";

interface Look {
  id: string;
  /** Since the beginning. */
  atS: number;
}

/** What a look at a batch finds, so many seconds after the beginning. */
type Life = (
  atS: number,
  looks: number,
) => { done: number; of?: number; status?: string; retryAfter?: number };

const running =
  (until: number): Life =>
  (atS) =>
    atS < until ? { done: 0 } : { done: 10, status: "completed" };

function bench(lives: Record<string, Life>, options: Partial<AwaitOptions> = {}, ageS = 0) {
  const clock = new FakeClock();
  const startMs = clock.nowMs();
  const now = () => (clock.nowMs() - startMs) / 1000;
  const looks: Look[] = [];
  let atOnce = 0;
  let mostAtOnce = 0;
  const wire = (id: string, atS: number, count: number) => {
    const { done, of = 10, status = "running" } = lives[id]?.(atS, count) ?? { done: 0 };
    const created_at = Math.floor(startMs / 1000) - ageS;
    return { id, status, item_count: of, success_count: done, fail_count: 0, created_at };
  };
  const http: Http = {
    baseUrl: "http://service.test",
    stream: () => Promise.reject(new Error("not used")),
    json: async ({ path, signal }: HttpRequest): Promise<JsonAnswer> => {
      mostAtOnce = Math.max(mostAtOnce, ++atOnce);
      await clock.sleep(20, signal);
      atOnce--;
      const id = path.split("/").at(-1) ?? "";
      const before = looks.filter((look) => look.id === id).length;
      looks.push({ id, atS: now() });
      const { retryAfter } = lives[id]?.(now(), before) ?? {};
      const headers = new Headers(retryAfter === undefined ? {} : { "retry-after": String(retryAfter) });
      return { json: wire(id, now(), before), headers, requestId: undefined, bytes: 0 };
    },
  };
  const progress: string[] = [];
  const reporter = { note() {}, detail() {}, progress: (text: string) => void progress.push(text) };
  const batches = Object.keys(lives).map((id) => readBatch({ ...wire(id, 0, 0), status: "queued" }) as Batch);
  const service = {
    http,
    identity: "x",
    keyFingerprint: "x",
    upstream: null,
    isLocal: false,
    isBorrowed: false,
  };
  const waiting = awaitBatches(batches, { service, clock, random: () => 0.5, reporter, ...options });
  /** Lets time pass as fast as everybody goes to sleep. */
  const pass = async () => {
    let ended = false;
    const settled = waiting.finally(() => {
      ended = true;
    });
    settled.catch(() => {});
    while (!ended) {
      await new Promise((resolve) => setImmediate(resolve));
      if (clock.nextWakeInMs !== null) clock.advance(clock.nextWakeInMs);
    }
    return settled;
  };
  const gapsOf = (id: string) => {
    const mine = looks.filter((look) => look.id === id);
    return mine.slice(1).map(({ atS }, i) => ({ atS, gapS: atS - (mine[i]?.atS ?? 0) }));
  };
  return { clock, looks, progress, pass, gapsOf, mostAtOnce: () => mostAtOnce };
}

it("[RUN-29] a slow batch does not hold up the others: each is looked at in its own time, and one progress tells of all", async () => {
  const { looks, progress, pass } = bench({ slow: running(300), quick: running(5), middle: running(60) });
  const ended = await pass();
  expect(ended.map((batch) => batch.status)).toEqual(["completed", "completed", "completed"]);
  const last = (id: string) => looks.findLast((look) => look.id === id)?.atS ?? 0;
  expect(last("quick")).toBeLessThan(20);
  expect(last("middle")).toBeLessThan(80);
  const shown = progress.map((text) => text.split(",")[0]);
  expect(shown[0]).toBe("0/30 images");
  expect(shown.at(-1)).toBe("30/30 images");
  const counts = shown.map((text) => Number.parseInt(text ?? "", 10));
  expect(counts).toEqual(counts.toSorted((a, b) => a - b));
  expect([...new Set(counts)]).toEqual([0, 10, 20, 30]);
});

it("[HTTP-33] every batch is asked at the rate of a single one, and few are asked at once", async () => {
  const lives = Object.fromEntries(Array.from({ length: 40 }, (_, i) => [`b${i}`, running(2000)]));
  const { pass, gapsOf, looks, mostAtOnce } = bench(lives);
  await pass();
  for (const id of Object.keys(lives)) {
    // A look may wait for its turn.
    for (const { atS, gapS } of gapsOf(id)) {
      const from = atS - gapS;
      expect(gapS).toBeGreaterThanOrEqual(from < 120 ? 10 : 30);
      expect(gapS).toBeLessThanOrEqual(from < 120 ? 24 : 70);
    }
  }
  expect(mostAtOnce()).toBeLessThanOrEqual(4);
  const perMinute = looks.filter(({ atS }) => atS >= 20 && atS < 80).length;
  expect(perMinute).toBeLessThanOrEqual(300);
});

it("[HTTP-33] the schedule counts from the creation of the batch, not from the beginning of the wait", async () => {
  const { pass, gapsOf } = bench({ old: running(200), older: running(200) }, {}, 7200);
  await pass();
  expect(gapsOf("old").map(({ gapS }) => Math.round(gapS))).toEqual([60, 60, 60, 60]);
  const ahead = bench({ a: running(100), b: running(100) }, {}, -7200);
  await ahead.pass();
  expect(ahead.gapsOf("a").every(({ gapS }) => gapS < 16)).toBe(true);
});

it("[HTTP-33] when the service asks for a pause, no batch is polled", async () => {
  const busy: Life = (atS, looks) =>
    looks === 1 ? { done: 0, retryAfter: 90 } : atS < 120 ? { done: 0 } : { done: 10, status: "completed" };
  const { pass, looks } = bench({ a: busy, b: running(120), c: running(120) });
  await pass();
  const asked = looks.filter((look) => look.id === "a")[1]?.atS ?? 0;
  const during = looks.filter(({ atS }) => atS > asked + 1 && atS < asked + 89);
  expect(asked).toBeLessThan(20);
  expect(during).toEqual([]);
});

it("[RUN-29] one batch that cannot be read ends the wait, and polling stops", async () => {
  const gone = () => {
    throw new ImgbatchError("BATCH_IMAGE_NOT_FOUND", "gone");
  };
  let calls = 0;
  const lost: Life = () => (calls++ < 2 ? { done: 0 } : gone());
  const { pass, clock } = bench({ a: running(9999), lost, b: running(9999) });
  await expect(pass()).rejects.toMatchObject({ code: "BATCH_IMAGE_NOT_FOUND" });
  expect(clock.sleeperCount).toBe(0);
});

it("[RUN-29] an interruption ends every look with its reason", async () => {
  const stop = new AbortController();
  const life: Life = (atS) => {
    if (atS > 30) stop.abort(new ImgbatchError("INTERRUPTED"));
    return { done: 0 };
  };
  const { pass, clock } = bench({ a: life, b: running(9999) }, { signal: stop.signal });
  await expect(pass()).rejects.toMatchObject({ code: "INTERRUPTED" });
  expect(clock.sleeperCount).toBe(0);
});

it("[HTTP-17] a fixed interval holds for each of several batches", async () => {
  const { pass, gapsOf } = bench({ a: running(3), b: running(3) }, { intervalMs: 500 });
  await pass();
  for (const { gapS } of [...gapsOf("a"), ...gapsOf("b")]) expect(gapS).toBeCloseTo(0.52, 2);
});
