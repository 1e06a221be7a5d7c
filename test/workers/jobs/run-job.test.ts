import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { describe, expect, it, onTestFinished } from "vitest";
import { DATA_FILES } from "../../../src/contract/data-directory.ts";
import type { BatchStatus } from "../../../src/contract/statuses.ts";
import type { ServiceEvent } from "../../../src/domain/feed.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { answerError } from "../../../src/providers/upstream/classify.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeJobProvider, lostAnswer } from "../../support/fake-job-provider.ts";
import { troubled } from "../../support/fake-provider.ts";
import { gate } from "../../support/gate.ts";
import { openConnection } from "../../support/raw-http.ts";
import { items, MODEL, openBeside, startTestService, type TestService } from "../../support/service.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const MARK = "may be paid twice";
const FREE = { models: [{ id: MODEL, prices: { "1K": 0 } }] };
/** A job whose creation has no answer is created once more. */
const ONCE = { config: { ...FREE, limits: { unknownOutcome: "once" } } };

const overloaded = (status: number) => ({ status, headers: new Headers(), body: undefined, isHtml: false });

const failure = (service: { ask(path: string): Promise<Response> }, id: string) =>
  service.ask(`/${id}/items?status=failed`).then((answer) => answer.json());

const PATIENCE_MS = 60_000;
/** How long a job is looked for where a test needs no more than the end of the search. */
const SOON_LOST_MS = 2 * MINUTE_MS;
/** Real time for the work that each step of the clock sets going. */
const BETWEEN_STEPS_MS = 8;

/** Lets time pass until something holds. */
async function passUntil(clock: FakeClock, stepMs: number, holds: () => boolean | Promise<boolean>) {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await holds())) {
    expect(Date.now(), "it did not come").toBeLessThan(deadline);
    clock.advance(stepMs);
    await systemClock.sleep(BETWEEN_STEPS_MS);
  }
}

/** Looks once, and then listens: time passes in hundreds of steps. */
function hasEnded(service: TestService, id: string): () => Promise<boolean> {
  let status: BatchStatus | null = null;
  const listen = (event: ServiceEvent) => {
    if (event.type === "batch" && event.batchId === id) status = event.status;
  };
  onTestFinished(service.feed.subscribe(listen));
  return async () => {
    status ??= (await service.batch(id)).status;
    return status !== "queued" && status !== "running";
  };
}

/** A paid upstream of jobs, and the clock of its services. */
function paidUpstream(options: ConstructorParameters<typeof FakeJobProvider>[0] = {}) {
  return { clock: new FakeClock(), upstream: new FakeJobProvider({ isPaid: true, ...options }) };
}

type Upstream = ReturnType<typeof paidUpstream>;

/** A service over a paid upstream; with a batch of so many images, unless `data` of an earlier service has one. */
async function startWith(
  { clock, upstream }: Upstream,
  { count = 0, ...options }: { count?: number; data?: string; logLines?: string[]; config?: object },
) {
  const service = await startTestService({ providers: [upstream], clock, config: FREE, ...options });
  const { id } = count > 0 ? await service.submit({ model: MODEL, items: items(count) }) : { id: "" };
  return { service, id };
}

/** Lets time pass until a batch has ended, and returns it. */
async function passToEnd(clock: FakeClock, stepMs: number, service: TestService, id: string) {
  await passUntil(clock, stepMs, hasEnded(service, id));
  return service.until(id);
}

async function jobsOf(service: TestService, id: string) {
  const { stores } = await openBeside(service.data);
  return stores.read.upstreamJobs.ofBatch(id);
}

describe("a provider that takes many images as a job", () => {
  it("gets a large batch as several jobs with a bounded number of images, a slot each", async () => {
    const upstream = new FakeJobProvider({ images: 2, concurrency: 2 });
    let most = 0;
    upstream.beforeCreate = async () => {
      most = Math.max(most, service.queue().running);
    };
    const service = await startTestService({ providers: [upstream] });
    const { id } = await service.submit({ model: MODEL, items: items(7) });
    expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 7 });
    expect([...upstream.jobs.values()].map((job) => job.items.length).sort()).toEqual([1, 2, 2, 2]);
    expect(most).toBe(2);
    const jobs = await jobsOf(service, id);
    expect(new Set(jobs.map((job) => job.id.split("-")[1])).size).toBe(1);
    expect(new Set(jobs.map((job) => job.id)).size).toBe(4);
    await service.expectBooks();
  });

  it("gets no job with more bytes of input than it takes, and a single item however large", async () => {
    const upstream = new FakeJobProvider({ bytes: 15 });
    const service = await startTestService({ providers: [upstream] });
    const large = { custom_id: "large", prompt: "a prompt that is longer than all" };
    const { id } = await service.submit({ model: MODEL, items: [large, ...items(3)] });
    expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 4 });
    const keys = [...upstream.jobs.values()].map((job) => job.items.map(({ key }) => key));
    expect(keys.map((each) => each.join()).sort()).toEqual(["i1", "i2", "i3", "large"]);
  });

  it("gets none once a stop has begun, also while that gives an open connection its time", async () => {
    const upstream = new FakeJobProvider({ isPaid: true });
    const [asked, rate] = [gate(), gate()];
    upstream.waitForRate = () => {
      asked.open();
      return rate.promise;
    };
    const service = await startTestService({ providers: [upstream], config: FREE });
    await service.submit({ model: MODEL, items: items(1) });
    await asked.promise;
    const connection = await openConnection(service);
    const closing = service.close(60_000);
    rate.open();
    const { stores } = await openBeside(service.data);
    // As many transactions as would record that the job is sent, and more.
    for (let i = 0; i < 5; i++) await stores.write((tx) => tx.touch());
    connection.destroy();
    await closing;
    expect(upstream.jobs.size).toBe(0);
  });
});

describe("a job that the upstream ended before it began", () => {
  it("[JOB-10] is created again from its input, without a mark", async () => {
    const { clock, upstream } = paidUpstream();
    upstream.status = (name) =>
      name === "upstream/3" ? { state: "succeeded" } : { state: "failed", refusal: troubled("limited") };
    const { service, id } = await startWith({ clock, upstream }, { count: 2 });
    const batch = await passToEnd(clock, 5000, service, id);
    expect(batch).toMatchObject({ status: "completed", success_count: 2, fail_count: 0 });
    expect([...upstream.jobs.values()].map(({ input }) => input)).toEqual(["input/1", "input/1", "input/1"]);
    for (const { notes } of await service.items(id)) expect(notes.join()).not.toContain(MARK);
    const [job] = await jobsOf(service, id);
    expect(job).toMatchObject({ creates: 3, refusals: 2, results: 2 });
  });

  it("[JOB-10] fails after the longest outage, with the reason", async () => {
    const { clock, upstream } = paidUpstream();
    upstream.status = () => ({ state: "failed", refusal: troubled("billing") });
    const { service, id } = await startWith({ clock, upstream }, { count: 1 });
    await expect.poll(() => upstream.jobs.size).toBe(1);
    const batch = await passToEnd(clock, 30 * MINUTE_MS, service, id);
    expect(batch).toMatchObject({ status: "failed" });
    expect(JSON.stringify(batch)).toContain("took no job for too long");
    expect(JSON.stringify(batch)).not.toContain("may have been billed");
  });

  it("[JOB-11] a request that the upstream had no room for in a job goes into another job, three times in all", async () => {
    const { clock, upstream } = paidUpstream();
    const { resultOf } = upstream;
    const asked = new Map<string, number>();
    upstream.resultOf = async (item) => {
      const count = (asked.get(item.key) ?? 0) + 1;
      asked.set(item.key, count);
      const isRefused = item.key === "i1" ? count === 1 : item.key === "i2";
      return isRefused ? { key: item.key, error: troubled("failing") } : resultOf(item);
    };
    const { service, id } = await startWith({ clock, upstream }, { count: 3 });
    const batch = await passToEnd(clock, 5000, service, id);
    expect(batch).toMatchObject({ success_count: 2, fail_count: 1 });
    expect([...asked.values()].sort()).toEqual([1, 2, 3]);
  });
});

describe("a job whose creation has no answer", () => {
  function lostOnce(upstream: FakeJobProvider) {
    upstream.afterCreate = () => {
      upstream.afterCreate = () => {};
      upstream.unlisted.add("upstream/1");
      throw lostAnswer();
    };
  }

  it("gives what the second job did not return", async () => {
    const { clock, upstream } = paidUpstream();
    lostOnce(upstream);
    upstream.beforeCreate = () => {
      if (upstream.jobs.size === 1) upstream.unlisted.clear();
    };
    const { results } = upstream;
    upstream.results = async function* (name) {
      if (name === "upstream/1") yield* results.call(upstream, name);
    };
    upstream.times.lostMs = SOON_LOST_MS;
    const { service, id } = await startWith({ clock, upstream }, { count: 2, ...ONCE });
    expect(await passToEnd(clock, 10_000, service, id)).toMatchObject({
      status: "completed",
      success_count: 2,
    });
  });

  it("is not missing while the request waits for its turn", async () => {
    const { clock, upstream } = paidUpstream();
    let waiting = 0;
    upstream.waitForRate = (signal) => {
      waiting++;
      return clock.sleep(HOUR_MS, signal);
    };
    const { service: first, id } = await startWith({ clock, upstream }, { count: 2 });
    await expect.poll(() => waiting).toBe(1);
    expect(await jobsOf(first, id)).toMatchObject([{ step: "uploaded", creates: 0, sentAtMs: null }]);
    await first.close(0);
    expect(upstream.jobs.size).toBe(0);
    upstream.waitForRate = async () => {};
    const { service: second } = await startWith({ clock, upstream }, { data: first.data });
    expect(await second.until(id)).toMatchObject({ status: "completed", success_count: 2 });
    expect(upstream.jobs.size).toBe(1);
  });

  it("[JOB-2] is found after a stop in the middle of the search for it, and when its list failed before", async () => {
    const { clock, upstream } = paidUpstream();
    lostOnce(upstream);
    const { resultOf, results, list } = upstream;
    upstream.resultOf = async (item) => (item.key === "i1" ? resultOf(item) : null);
    let hangs = 0;
    upstream.results = async function* (name) {
      yield* results.call(upstream, name);
      upstream.list = async function* (signal) {
        hangs++;
        await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
        yield* list.call(upstream);
      };
    };
    const { service: first, id } = await startWith({ clock, upstream }, { count: 2, ...ONCE });
    await passUntil(clock, MINUTE_MS, () => hangs > 0);
    await first.close(0);
    upstream.unlisted.clear();
    upstream.resultOf = resultOf;
    let failures = 2;
    upstream.list = async function* () {
      if (failures-- > 0) throw troubled("failing");
      yield* list.call(upstream);
    };
    upstream.results = async function* (name) {
      if (name === "upstream/1") yield* results.call(upstream, name);
    };
    const { service: second } = await startWith({ clock, upstream }, { data: first.data, ...ONCE });
    expect(await passToEnd(clock, 10_000, second, id)).toMatchObject({
      status: "completed",
      success_count: 2,
    });
    const names = ["upstream/2", "upstream/1"];
    expect(await jobsOf(second, id)).toMatchObject([{ upstreamName: null, endedNames: names }]);
    await second.expectBooks();
  });

  it.each([
    ["stop", 1, "may be billed"],
    ["once", 2, "may be paid twice"],
  ])(
    "is given up by the rule %s after %i requests: its items have no known outcome",
    async (rule, creates, note) => {
      const { clock, upstream } = paidUpstream();
      upstream.beforeCreate = () => {
        throw troubled("ambiguous");
      };
      upstream.times.lostMs = SOON_LOST_MS;
      const config = { ...FREE, limits: { unknownOutcome: rule } };
      const { service, id } = await startWith({ clock, upstream }, { count: 1, config });
      expect(await passToEnd(clock, 10_000, service, id)).toMatchObject({
        status: "completed",
        fail_count: 1,
      });
      const error = { code: "OUTCOME_UNKNOWN", message: expect.stringContaining("may have been billed") };
      expect(await service.items(id)).toMatchObject([{ error, notes: [expect.stringContaining(note)] }]);
      expect(await jobsOf(service, id)).toMatchObject([{ creates }]);
      await service.expectBooks();
    },
  );

  it("for two days is never created again", async () => {
    const { clock, upstream } = paidUpstream();
    lostOnce(upstream);
    const { service: first, id } = await startWith({ clock, upstream }, { count: 1, ...ONCE });
    await expect.poll(() => [upstream.jobs.size, clock.nextWakeInMs]).toEqual([1, upstream.times.pollMs]);
    await first.close(0);
    clock.advance(48 * HOUR_MS);
    const { service: second } = await startWith({ clock, upstream }, { data: first.data, ...ONCE });
    const error = { code: "OUTCOME_UNKNOWN", message: expect.stringContaining("may have been billed") };
    expect(await second.until(id)).toMatchObject({ status: "completed", fail_count: 1 });
    expect(await second.items(id)).toMatchObject([{ error }]);
    expect(upstream.jobs.size).toBe(1);
  });

  it("is not created again while the list cannot be read", async () => {
    const { clock, upstream } = paidUpstream();
    const { list } = upstream;
    lostOnce(upstream);
    // biome-ignore lint/correctness/useYield: it fails before
    upstream.list = async function* () {
      upstream.lists++;
      throw troubled("failing");
    };
    const { service, id } = await startWith({ clock, upstream }, { count: 1 });
    const startMs = clock.nowMs();
    // Two days must not pass before the job is looked for: then it would not be looked for any more.
    await passUntil(clock, 10_000, () => upstream.lists > 2);
    await passUntil(clock, 5 * MINUTE_MS, () => clock.nowMs() - startMs > 2 * HOUR_MS && upstream.lists > 5);
    expect(upstream.jobs.size).toBe(1);
    upstream.list = list.bind(upstream);
    upstream.unlisted.clear();
    expect(await passToEnd(clock, MINUTE_MS, service, id)).toMatchObject({
      status: "completed",
      success_count: 1,
    });
  });
});

describe("an upstream of jobs with a trouble", () => {
  it("lets a batch wait that it cannot take now, and tells why and until when", async () => {
    const { clock, upstream } = paidUpstream({ name: "vendor" });
    let [isFull, tries] = [true, 0];
    upstream.beforeCreate = () => {
      tries++;
      if (isFull) throw troubled("limited", { retryAfterMs: 10 * MINUTE_MS });
    };
    const { service, id } = await startWith({ clock, upstream }, { count: 2 });
    const until = Math.ceil(clock.nowMs() / 1000) + 600;
    const reason = async () => (await service.batch(id)).waiting;
    const limited = { code: "PROVIDER_RATE_LIMITED", message: expect.stringContaining("vendor") };
    await expect.poll(reason).toMatchObject({ ...limited, until });
    await passUntil(clock, MINUTE_MS, () => tries === 2);
    await expect.poll(reason).toMatchObject(limited);
    isFull = false;
    expect(await passToEnd(clock, MINUTE_MS, service, id)).toMatchObject({
      status: "completed",
      waiting: null,
    });
    expect([upstream.jobs.size, upstream.inputs.size]).toEqual([1, 0]);
  });

  it("lets a batch wait whose job it says that it cannot take now, and creates one, marked", async () => {
    const { clock, upstream } = paidUpstream({ name: "vendor" });
    let refusals = 3;
    upstream.beforeCreate = () => {
      if (refusals-- > 0) throw answerError("vendor", overloaded(refusals === 0 ? 529 : 503), clock.nowMs());
    };
    const { service, id } = await startWith({ clock, upstream }, { count: 2 });
    await expect
      .poll(async () => (await service.batch(id)).waiting)
      .toMatchObject({ code: "PROVIDER_FAILING" });
    expect(await passToEnd(clock, MINUTE_MS, service, id)).toMatchObject({
      status: "completed",
      success_count: 2,
    });
    expect([upstream.jobs.size, refusals]).toEqual([1, -1]);
    // Each of the four requests may have made a job.
    expect((await jobsOf(service, id)).map(({ creates }) => creates)).toEqual([4]);
    for (const item of await service.items(id)) expect(item.notes.join()).toContain(MARK);
  });

  it.each(["before", "after"])(
    "is looked through once for a job that exists although it said that it takes none (%s a restart)",
    async (when) => {
      const { clock, upstream } = paidUpstream({ name: "vendor" });
      let refusals = 1;
      upstream.afterCreate = () => {
        if (refusals-- > 0) throw answerError("vendor", overloaded(503), clock.nowMs());
      };
      let { service, id } = await startWith({ clock, upstream }, { count: 2 });
      if (when === "after") {
        const { data } = service;
        const waiting = async () => (await service.batch(id)).waiting;
        await expect.poll(waiting).toMatchObject({ code: "PROVIDER_FAILING" });
        await service.close(0);
        ({ service } = await startWith({ clock, upstream }, { data }));
      }
      expect(await passToEnd(clock, MINUTE_MS, service, id)).toMatchObject({
        status: "completed",
        success_count: 2,
      });
      expect([upstream.jobs.size, upstream.cancelled]).toEqual([1, []]);
      expect((await jobsOf(service, id)).map(({ creates }) => creates)).toEqual([1]);
      expect(JSON.stringify(await service.items(id))).not.toContain(MARK);
    },
  );

  it.each(["made", "stopped"])(
    "leaves the mark of images that were perhaps paid before a restore (%s)",
    async (outcome) => {
      const { clock, upstream } = paidUpstream({ name: "vendor" });
      const opened = gate();
      upstream.waitForRate = () => opened.promise;
      upstream.afterCreate = () => {
        if (outcome === "made") throw answerError("vendor", overloaded(503), clock.nowMs());
      };
      if (outcome === "stopped") upstream.status = () => ({ state: "running" });
      const { service, id } = await startWith({ clock, upstream }, { count: 2 });
      await expect
        .poll(async () => (await jobsOf(service, id)).map(({ step }) => step))
        .toEqual(["uploaded"]);
      const [job] = await jobsOf(service, id);
      const { stores } = await openBeside(service.data);
      await stores.write((tx) => tx.items.markJob(job?.id ?? "", "once"));
      opened.open();
      await expect.poll(() => upstream.jobs.size).toBe(1);
      if (outcome === "stopped") {
        await expect.poll(() => upstream.polls).toBeGreaterThan(0);
        expect((await service.ask(`/${id}/end-jobs`, { method: "POST" })).ok).toBe(true);
        upstream.resultOf = async () => null;
      }
      await passToEnd(clock, MINUTE_MS, service, id);
      expect([upstream.jobs.size, (await jobsOf(service, id)).map(({ creates }) => creates)]).toEqual([
        1,
        [1],
      ]);
      for (const { notes } of await service.items(id)) expect(notes.join()).toContain(MARK);
    },
  );

  it("and lists such a job late has it stopped", async () => {
    const { clock, upstream } = paidUpstream({ name: "vendor" });
    upstream.afterCreate = () => {
      upstream.afterCreate = () => {};
      upstream.unlisted.add("upstream/1");
      throw answerError("vendor", overloaded(503), clock.nowMs());
    };
    upstream.status = (name) => ({ state: name === "upstream/1" ? "running" : "succeeded" });
    upstream.times.lostMs = SOON_LOST_MS;
    const { service, id } = await startWith({ clock, upstream }, { count: 2 });
    expect(await passToEnd(clock, 10_000, service, id)).toMatchObject({
      status: "completed",
      success_count: 2,
    });
    for (const { notes } of await service.items(id)) expect(notes.join()).toContain(MARK);
    upstream.unlisted.clear();
    await passUntil(clock, MINUTE_MS, () => upstream.cancelled.length > 0);
    expect([upstream.jobs.size, upstream.cancelled]).toEqual([2, ["upstream/1"]]);
  });

  it("that takes none for a whole day has billed nothing", async () => {
    const { clock, upstream } = paidUpstream({ name: "vendor" });
    let creates = 0;
    upstream.beforeCreate = () => {
      creates++;
      throw answerError("vendor", overloaded(503), clock.nowMs());
    };
    const { service, id } = await startWith({ clock, upstream }, { count: 1 });
    await passUntil(clock, MINUTE_MS, () => creates > 2);
    await passUntil(clock, HOUR_MS, hasEnded(service, id));
    const ended = await service.until(id);
    expect(ended).toMatchObject({ status: "failed", actual_cost: 0 });
    expect(ended.error?.message).toContain("could not be used for too long");
    expect(ended.error?.message).not.toContain("billed");
    await service.expectBooks();
  });

  it("that said so before a cancellation has such a job stopped", async () => {
    const { clock, upstream } = paidUpstream({ name: "vendor" });
    upstream.status = () => ({ state: "running" });
    upstream.afterCreate = () => {
      throw answerError("vendor", overloaded(529), clock.nowMs());
    };
    const { service, id } = await startWith({ clock, upstream }, { count: 1 });
    await expect
      .poll(async () => (await service.batch(id)).waiting)
      .toMatchObject({ code: "PROVIDER_FAILING" });
    await service.ask(`/${id}/cancel`, { method: "POST" });
    await passUntil(clock, MINUTE_MS, () => upstream.cancelled.length > 0);
    expect([upstream.jobs.size, upstream.cancelled]).toEqual([1, ["upstream/1"]]);
  });

  it("fails the batch after too long an outage", async () => {
    const { clock, upstream } = paidUpstream();
    upstream.upload = () => Promise.reject(troubled("unreachable"));
    const config = { ...FREE, limits: { outageHours: 1 } };
    const service = await startTestService({ providers: [upstream], clock, config });
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    await expect
      .poll(async () => (await service.batch(id)).waiting)
      .toMatchObject({ code: "PROVIDER_UNREACHABLE" });
    const error = { message: expect.stringContaining("for too long") };
    expect(await passToEnd(clock, 5 * MINUTE_MS, service, id)).toMatchObject({ status: "failed", error });
  });

  it("does not end a job because it cannot be polled", async () => {
    const { clock, upstream } = paidUpstream();
    const { poll } = upstream;
    upstream.poll = () => {
      upstream.polls++;
      return Promise.reject(troubled("failing"));
    };
    const { service, id } = await startWith({ clock, upstream }, { count: 1 });
    await passUntil(clock, MINUTE_MS, () => upstream.polls > 40);
    upstream.poll = poll.bind(upstream);
    expect(await passToEnd(clock, MINUTE_MS, service, id)).toMatchObject({
      status: "completed",
      success_count: 1,
    });
    expect(upstream.jobs.size).toBe(1);
  });

  it("asks for no job with a key that is refused, and says so", async () => {
    const { clock, upstream } = paidUpstream();
    const { poll } = upstream;
    upstream.poll = () => {
      upstream.polls++;
      return Promise.reject(troubled("credential"));
    };
    const { service: first, id } = await startWith({ clock, upstream }, { count: 1 });
    await expect
      .poll(async () => (await first.batch(id)).waiting)
      .toMatchObject({ code: "PROVIDER_CREDENTIAL", until: null });
    expect(upstream.polls).toBe(1);
    await first.close(0);
    // Another key, under which the jobs are the same.
    const next = new FakeJobProvider({ isPaid: true });
    Object.assign(next, { jobs: upstream.jobs, inputs: upstream.inputs, poll: poll.bind(next) });
    Object.assign(next.upstream ?? {}, { fingerprint: "another key" });
    const second = await startTestService({ data: first.data, providers: [next], clock, config: FREE });
    expect(await second.until(id)).toMatchObject({ status: "completed", success_count: 1 });
  });

  it("whose results are gone is not asked for them for ever", async () => {
    const { clock, upstream } = paidUpstream();
    // biome-ignore lint/correctness/useYield: it fails before
    upstream.results = async function* () {
      throw new ProviderError("PROVIDER_ITEM_FAILED", "no such file", {
        trouble: "forbidden",
        upstreamStatus: 403,
      });
    };
    const { service, id } = await startWith({ clock, upstream }, { count: 1 });
    expect(await passToEnd(clock, MINUTE_MS, service, id)).toMatchObject({
      status: "completed",
      fail_count: 1,
      waiting: null,
    });
    expect(await failure(service, id)).toMatchObject({
      data: [{ error: { code: "OUTCOME_UNKNOWN", message: expect.stringContaining("billed") } }],
    });
  });

  it.each([
    [404, "no-model"],
    [302, "no-model"],
    [400, null],
  ] as const)("gives results after one HTTP %i to a fetch of them", async (upstreamStatus, trouble) => {
    const { clock, upstream } = paidUpstream();
    const { results } = upstream;
    let refusals = 1;
    upstream.results = async function* (name) {
      if (refusals-- > 0) throw new ProviderError("PROVIDER_ITEM_FAILED", "no", { trouble, upstreamStatus });
      yield* results.call(upstream, name);
    };
    const { service, id } = await startWith({ clock, upstream }, { count: 2 });
    expect(await passToEnd(clock, 10_000, service, id)).toMatchObject({
      status: "completed",
      success_count: 2,
    });
  });
});

it("results that always end early are taken as they are in the end, and the rest says so", async () => {
  const { clock, upstream } = paidUpstream();
  const { results } = upstream;
  let reads = 0;
  upstream.results = async function* (name) {
    reads++;
    for await (const result of results.call(upstream, name)) {
      if ("key" in result && result.key === "i1") yield { endsEarly: "1 of 2" };
      else yield result;
    }
  };
  const { service, id } = await startWith({ clock, upstream }, { count: 2 });
  const ended = await passToEnd(clock, 10_000, service, id);
  expect(ended).toMatchObject({ status: "completed", success_count: 1, fail_count: 1 });
  expect(reads).toBe(6);
  const failed = (await service.items(id)).flatMap(({ error }) => error ?? []);
  expect(failed).toMatchObject([{ code: "OUTCOME_UNKNOWN", message: expect.stringContaining("1 of 2") }]);
  await service.expectBooks();
});

describe("a job that took too long while the service was off", () => {
  it("[JOB-7] has its hour from the first request to stop it, and no restart makes it longer", async () => {
    const { clock, upstream } = paidUpstream();
    upstream.status = () => ({ state: "running" });
    upstream.resultOf = async () => null;
    let asked = 0;
    upstream.cancel = async () => {
      asked++;
    };
    const start = (data?: string) =>
      startTestService({
        providers: [upstream],
        clock,
        config: FREE,
        ...(data === undefined ? {} : { data }),
      });
    let service = await start();
    const { data } = service;
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await expect.poll(() => upstream.polls).toBe(1);
    for (const [offMs, isRunning] of [
      [30 * HOUR_MS, true],
      [40 * MINUTE_MS, true],
      [20 * MINUTE_MS, false],
    ] as const) {
      await service.close(0);
      clock.advance(offMs);
      const { polls } = upstream;
      service = await start(data);
      await expect.poll(() => upstream.polls).toBeGreaterThan(polls);
      await expect
        .poll(async () => ["queued", "running"].includes((await service.batch(id)).status))
        .toBe(isRunning);
    }
    expect(asked).toBe(3);
    const message = expect.stringContaining("nor after it was asked to stop it");
    expect(await service.until(id)).toMatchObject({ status: "completed", fail_count: 1 });
    expect(await service.items(id)).toMatchObject([{ error: { code: "OUTCOME_UNKNOWN", message } }]);
  });
});

describe("jobs at an upstream", () => {
  it("are shown with their batch: name, state, age and what the upstream said", async () => {
    const clock = new FakeClock();
    const upstream = new FakeJobProvider({ images: 1 });
    upstream.status = () => ({ state: "running", said: "PENDING" });
    const service = await startTestService({ providers: [upstream], clock });
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    const job = (name: string) => ({
      id: expect.stringMatching(/^imgbatch-[0-9a-f]{12}-job_/),
      name,
      state: "PENDING",
      said: "PENDING",
      created_at: Math.floor(clock.nowMs() / 1000),
    });
    await expect
      .poll(async () => (await service.batch(id)).upstream_jobs)
      .toEqual(expect.arrayContaining([job("upstream/1"), job("upstream/2")]));
    upstream.status = () => ({ state: "succeeded" });
    await passUntil(clock, 10_000, hasEnded(service, id));
    expect((await service.until(id)).upstream_jobs).toEqual([]);
  });

  it("are polled more seldom as they get older", async () => {
    const clock = new FakeClock();
    const upstream = new FakeJobProvider();
    upstream.status = () => ({ state: "running" });
    const service = await startTestService({ providers: [upstream], clock });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    const looks = () => [upstream.polls, clock.nextWakeInMs];
    await expect.poll(looks).toEqual([1, 10_000]);
    for (let n = 2; n <= 4; n++) {
      clock.advance(10_000);
      await expect.poll(looks).toEqual([n, 10_000]);
    }
    clock.advance(4 * HOUR_MS);
    await expect.poll(async () => (await jobsOf(service, id))[0]?.polledAtMs).toBe(clock.nowMs());
    expect(upstream.polls).toBe(5);
    for (let minute = 1; minute <= 4; minute++) clock.advance(MINUTE_MS);
    expect(upstream.polls).toBe(5);
    clock.advance(MINUTE_MS);
    await expect.poll(() => upstream.polls).toBe(6);
  });

  it("leave none behind either when a crash came after the last image of their batch", async () => {
    const upstream = new FakeJobProvider({ isPaid: true });
    const { discard } = upstream;
    upstream.discard = () => Promise.reject(troubled("failing"));
    const first = await startTestService({ providers: [upstream], config: FREE });
    const { id } = await first.submit({ model: MODEL, items: items(1) });
    await first.until(id);
    await first.close(0);
    const database = new Sqlite(join(first.data, DATA_FILES.database));
    database.exec("UPDATE batches SET status = 'running', settled_at_ms = NULL");
    const changes = "step = 'ended', upstream_name = 'upstream/1', ended_names = '[]'";
    expect(database.prepare(`UPDATE upstream_jobs SET ${changes}`).run().changes).toBe(1);
    database.close();
    upstream.discard = discard.bind(upstream);
    const clock = new FakeClock(Date.now());
    const { service: second } = await startWith({ clock, upstream }, { data: first.data });
    await second.until(id);
    await passUntil(clock, MINUTE_MS, () => upstream.inputs.size === 0);
    await expect.poll(async () => (await jobsOf(second, id))[0]?.step).toBe("closed");
  });

  it("whose input cannot be deleted any more are closed all the same", async () => {
    const upstream = new FakeJobProvider({ isPaid: true });
    upstream.discard = () => Promise.reject(new ProviderError("INVALID_ARGUMENT", "no such file"));
    const service = await startTestService({ providers: [upstream], config: FREE });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await service.until(id);
    await expect.poll(async () => (await jobsOf(service, id))[0]?.step).toBe("closed");
  });
});
