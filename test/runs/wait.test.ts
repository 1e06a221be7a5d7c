import { describe, expect, it } from "vitest";
import { exitCodeOf } from "../../src/cli/output/finish.ts";
import { type Batch, readBatch } from "../../src/client/answers.ts";
import { EXIT_CODES, ImgbatchError } from "../../src/contract/errors.ts";
import type { RunEvent } from "../../src/contract/events.ts";
import { WAITING_CODES } from "../../src/contract/waiting.ts";
import type { Http, HttpRequest, JsonAnswer } from "../../src/http/http.ts";
import { clockTime } from "../../src/kernel/durations.ts";
import { EMBEDDED } from "../../src/runs/directory/run-service.ts";
import { awaitBatches } from "../../src/runs/wait.ts";
import { FakeClock } from "../support/fake-clock.ts";

interface Look {
  id: string;
  /** Since the beginning. */
  atS: number;
}

/** The state that a look at a batch finds, this many seconds after the beginning. */
type Life = (
  atS: number,
  looks: number,
) => {
  done: number;
  of?: number;
  status?: string;
  retryAfter?: number;
  waiting?: object | null;
  queued_behind?: number | null;
  isDown?: boolean;
};

const running =
  (until: number): Life =>
  (atS) =>
    atS < until ? { done: 0 } : { done: 10, status: "completed" };

function bench(
  lives: Record<string, Life>,
  options: Partial<Parameters<typeof awaitBatches>[1]> & { identity?: string } = {},
  ageS = 0,
) {
  const clock = new FakeClock();
  const startMs = clock.nowMs();
  const now = () => (clock.nowMs() - startMs) / 1000;
  const looks: Look[] = [];
  let atOnce = 0;
  let mostAtOnce = 0;
  const wire = (id: string, atS: number, count: number) => {
    const life = lives[id]?.(atS, count) ?? { done: 0 };
    const { done, of = 10, status = "running", waiting, queued_behind } = life;
    const created_at = Math.floor(startMs / 1000) - ageS;
    return {
      id,
      status,
      item_count: of,
      success_count: done,
      fail_count: 0,
      created_at,
      provider: id[0],
      waiting,
      queued_behind,
    };
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
      if (lives[id]?.(now(), before).isDown)
        throw new ImgbatchError("NETWORK", "No answer from http://service.test (connection refused)");
      const { retryAfter } = lives[id]?.(now(), before) ?? {};
      const headers = new Headers(retryAfter === undefined ? {} : { "retry-after": String(retryAfter) });
      return { json: wire(id, now(), before), headers, requestId: undefined, bytes: 0 };
    },
  };
  const progress: string[] = [];
  const reporter = { note() {}, detail() {}, progress: (text: string) => void progress.push(text) };
  const events: RunEvent[] = [];
  const batches = Object.keys(lives).map((id) => readBatch({ ...wire(id, 0, 0), status: "queued" }) as Batch);
  const service = {
    http,
    identity: options.identity ?? "x",
    keyFingerprint: "x",
    upstream: null,
    isLocal: false,
  };
  const waiting = awaitBatches(batches, {
    service,
    clock,
    random: () => 0.5,
    reporter: { ...reporter, event: (event) => void events.push(event) },
    ...options,
  });
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
  return { clock, looks, progress, events, pass, gapsOf, mostAtOnce: () => mostAtOnce };
}

it("a slow batch does not hold up the others: each is looked at in its own time, and one progress tells of all", async () => {
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

it("the rate leaves out the images that were made before each batch was looked at", async () => {
  /** The first state is that of the creation. */
  const life = (): Life => {
    let isCreated = false;
    return (atS) => {
      const done = isCreated ? Math.min(1000, 900 + Math.floor(atS)) : 0;
      isCreated = true;
      return { done, of: 1000, status: atS < 100 ? "running" : "completed" };
    };
  };
  const { progress, pass } = bench({ a: life(), b: life() });
  await pass();
  const rates = progress.flatMap((text) =>
    [...text.matchAll(/([\d.]+)\/s/g)].map(([, rate]) => Number(rate)),
  );
  expect(rates.length).toBeGreaterThan(0);
  // Two images are made each second; the two batches are not looked at in the same one.
  expect(Math.max(...rates)).toBeLessThan(20);
});

it("the progress reports an outage, its reason, and until when it is waited out", async () => {
  const life: Life = (atS) => ({ ...running(300)(atS, 0), isDown: atS > 60 && atS < 200 });
  const { clock, progress, pass } = bench({ a: life });
  const startMs = clock.nowMs();
  expect((await pass())[0]?.status).toBe("completed");
  const outage = progress.filter((text) => text.startsWith("no answer"));
  expect(outage.length).toBeGreaterThan(3);
  for (const text of outage) {
    const [, until = ""] =
      /^no answer from http:\/\/service\.test \(connection refused\); trying until (.*)$/.exec(text) ?? [];
    expect(until >= clockTime(startMs + 540_000) && until <= clockTime(startMs + 560_000)).toBe(true);
  }
  expect(progress.at(-1)).toMatch(/^10\/10 images/);
});

it("every batch is asked at the rate of a single one, and few are asked at once", async () => {
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

it("the schedule counts from the creation of the batch, not from the beginning of the wait", async () => {
  const { pass, gapsOf } = bench({ old: running(200), older: running(200) }, {}, 7200);
  await pass();
  expect(gapsOf("old").map(({ gapS }) => Math.round(gapS))).toEqual([60, 60, 60, 60]);
  const ahead = bench({ a: running(100), b: running(100) }, {}, -7200);
  await ahead.pass();
  expect(ahead.gapsOf("a").every(({ gapS }) => gapS < 16)).toBe(true);
});

it("when the service asks for a pause, no batch is polled", async () => {
  const busy: Life = (atS, looks) =>
    looks === 1 ? { done: 0, retryAfter: 90 } : atS < 120 ? { done: 0 } : { done: 10, status: "completed" };
  const { pass, looks } = bench({ a: busy, b: running(120), c: running(120) });
  await pass();
  const asked = looks.filter((look) => look.id === "a")[1]?.atS ?? 0;
  const during = looks.filter(({ atS }) => atS > asked + 1 && atS < asked + 89);
  expect(asked).toBeLessThan(20);
  expect(during).toEqual([]);
});

it("one batch that cannot be read ends the wait, and polling stops", async () => {
  const gone = () => {
    throw new ImgbatchError("BATCH_IMAGE_NOT_FOUND", "gone");
  };
  let calls = 0;
  const lost: Life = () => (calls++ < 2 ? { done: 0 } : gone());
  const { pass, clock } = bench({ a: running(9999), lost, b: running(9999) });
  await expect(pass()).rejects.toMatchObject({ code: "BATCH_IMAGE_NOT_FOUND" });
  expect(clock.sleeperCount).toBe(0);
});

it("an interruption ends every look with its reason", async () => {
  const stop = new AbortController();
  const life: Life = (atS) => {
    if (atS > 30) stop.abort(new ImgbatchError("INTERRUPTED"));
    return { done: 0 };
  };
  const { pass, clock } = bench({ a: life, b: running(9999) }, { signal: stop.signal });
  await expect(pass()).rejects.toMatchObject({ code: "INTERRUPTED" });
  expect(clock.sleeperCount).toBe(0);
});

it("a fixed interval holds for each of several batches", async () => {
  const { pass, gapsOf } = bench({ a: running(3), b: running(3) }, { intervalMs: 500 });
  await pass();
  for (const { gapS } of [...gapsOf("a"), ...gapsOf("b")]) expect(gapS).toBeCloseTo(0.52, 2);
});

/** A waiting of the batch API, until this many seconds after the beginning. */
function waitingFor(code: string, untilS: number | null) {
  const until = untilS === null ? null : Math.floor(new FakeClock().nowMs() / 1000) + untilS;
  return { code, message: "google: takes no more requests now.", until };
}

/** Waits from the beginning, and ends after this many seconds. */
const parked =
  (waiting: object, endS = 900): Life =>
  (atS) =>
    atS < endS ? { done: 0, waiting } : { done: 10, status: "completed" };

describe("a batch whose provider cannot be asked now", () => {
  it("progress and events say for which provider it waits, why and until when, once for each change", async () => {
    const waiting = waitingFor("PROVIDER_RATE_LIMITED", 90);
    const { pass, progress, events } = bench({ a: parked(waiting, 90), b: running(40) });
    await pass();
    const time = clockTime(waiting.until === null ? 0 : waiting.until * 1000);
    const text = `waiting for google: takes no more requests now; next try at ${time}`;
    expect(progress.some((line) => line.endsWith(`running, 1 batch ${text}`))).toBe(true);
    expect(progress.some((line) => line.startsWith("10/20 images") && line.endsWith(`/s, ${text}`))).toBe(
      true,
    );
    const told = events.filter((event) => event.event === "progress" && event.waiting !== null);
    expect(told).toEqual([
      expect.objectContaining({
        batch_id: "a",
        waiting: { ...waiting, until: new Date((waiting.until ?? 0) * 1000).toISOString() },
      }),
    ]);
  });

  it.each(
    Object.entries(WAITING_CODES).flatMap(([code, exit]) =>
      ["STOPPED", "CANCELLING"].includes(code)
        ? []
        : [[code as keyof typeof WAITING_CODES, EXIT_CODES[exit].code] as const],
    ),
  )("%s ends a command with the embedded service with %i when it lasts", async (code, exit) => {
    const untilS = code === "PROVIDER_RATE_LIMITED" ? 700 : null;
    const { pass, looks } = bench({ a: parked(waitingFor(code, untilS)) }, { identity: EMBEDDED });
    const error = await pass().catch((thrown) => thrown);
    expect(error).toMatchObject({ code });
    expect(exitCodeOf(error)).toBe(exit);
    expect(error.message).toMatch(
      untilS === null
        ? /^a is parked until the configuration changes\. /
        : /^a is parked until \d\d:\d\d:\d\d\. /,
    );
    expect(looks.length).toBe(1);
  });

  it("a batch in line behind it counts as parked; one that goes on is waited for first", async () => {
    const stuck = parked(waitingFor("PROVIDER_BILLING", null));
    const queued: Life = () => ({ done: 0, status: "queued" });
    const inLine = bench({ a1: stuck, a2: queued }, { identity: EMBEDDED });
    await expect(inLine.pass()).rejects.toMatchObject({
      code: "PROVIDER_BILLING",
      message: expect.stringMatching(/^2 batches are parked/),
    });
    const other = bench({ a: stuck, b: running(300) }, { identity: EMBEDDED });
    await expect(other.pass()).rejects.toMatchObject({ code: "PROVIDER_BILLING" });
    expect(other.progress.at(-1)).toMatch(/^10\/20 images/);
  });

  it("[HEALTH-10] a command waits for a short pause, for none that needs a person or takes ten minutes, and for a service elsewhere as long as it takes", async () => {
    const soon = bench({ a: parked(waitingFor("PROVIDER_FAILING", 300), 300) }, { identity: EMBEDDED });
    expect((await soon.pass()).map(({ status }) => status)).toEqual(["completed"]);
    for (const code of ["PROVIDER_BILLING", "PROVIDER_FORBIDDEN"] as const) {
      const person = bench({ a: parked(waitingFor(code, 300), 300) }, { identity: EMBEDDED });
      await expect(person.pass()).rejects.toMatchObject({ code });
    }
    const long = bench({ a: parked(waitingFor("PROVIDER_RATE_LIMITED", 600), 600) }, { identity: EMBEDDED });
    await expect(long.pass()).rejects.toMatchObject({ code: "PROVIDER_RATE_LIMITED" });
    const elsewhere = bench({ a: parked(waitingFor("PROVIDER_CREDENTIAL", null)) });
    expect((await elsewhere.pass()).map(({ status }) => status)).toEqual(["completed"]);
  });
});

it("progress tells how many batches come before a queued one, where the service says it", async () => {
  const life = (queued_behind: number | null): Life => {
    return (atS) =>
      atS < 60 ? { done: 0, status: "queued", queued_behind } : { done: 10, status: "completed" };
  };
  const behind = async (count: number | null) => {
    const run = bench({ a: life(count) });
    await run.pass();
    return run.progress[0];
  };
  expect(await behind(47)).toContain("waiting behind 47 other batches");
  expect(await behind(1)).toContain("waiting behind 1 other batch");
  for (const none of [0, null]) expect(await behind(none)).toContain("queued");
});
