import { describe, expect, it, onTestFinished } from "vitest";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import type { UpstreamJobRecord } from "../../../src/domain/ports/stores.ts";
import { silentLog } from "../../../src/kernel/log.ts";
import { openAdmin } from "../../../src/service/admin.ts";
import type { WorkerDeps } from "../../../src/workers/deps.ts";
import { closeJob } from "../../../src/workers/jobs/run-job.ts";
import { onEachDialect } from "../../support/dialects.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeJobProvider, lostAnswer } from "../../support/fake-job-provider.ts";
import { gate } from "../../support/gate.ts";
import { items, MODEL, openBeside, startTestService, type TestService } from "../../support/service.ts";
import { openBatchRecord } from "../../support/stores.ts";

/** An upstream whose jobs run until they are told to stop. */
function busyUpstream(): FakeJobProvider {
  const upstream = new FakeJobProvider();
  upstream.status = () => ({ state: "running" });
  return upstream;
}

/** Makes the upstream refuse every cancellation, until the returned function is called. */
function refuseToCancel(upstream: FakeJobProvider): () => void {
  const cancel = upstream.cancel;
  upstream.cancel = () => Promise.reject(new Error("not now"));
  return () => {
    upstream.cancel = cancel;
  };
}

/** Makes the upstream refuse to list its jobs, until the returned function is called. */
function refuseToList(upstream: FakeJobProvider): () => void {
  const { list } = upstream;
  // biome-ignore lint/correctness/useYield: it fails before
  upstream.list = async function* () {
    throw new Error("not now");
  };
  return () => {
    upstream.list = list;
  };
}

/** Holds up creations before or after the upstream takes them. `came`: one is there; `goesOn`: lets it go on. */
function holdCreations(upstream: FakeJobProvider, when: "beforeCreate" | "afterCreate") {
  const [came, goesOn] = [gate(), gate()];
  upstream[when] = () => {
    came.open();
    return goesOn.promise;
  };
  return { came, goesOn };
}

async function stepsOf(service: TestService, id: string) {
  const { stores } = await openBeside(service.data);
  return (await stores.read.upstreamJobs.ofBatch(id)).map(({ step }) => step);
}

const cancel = (service: TestService, id: string) => service.ask(`/${id}/cancel`, { method: "POST" });

async function cancelled(service: TestService, id: string): Promise<void> {
  const answer = await cancel(service, id);
  expect([answer.status, await answer.json()]).toEqual([
    200,
    expect.objectContaining({ status: "cancelled" }),
  ]);
}

async function refused(service: TestService, id: string): Promise<void> {
  const answer = await cancel(service, id);
  expect([answer.status, await answer.json()]).toMatchObject([
    502,
    { error: { code: "BATCH_IMAGE_CANCEL_FAILED" } },
  ]);
}

/** A service whose caller has real money. */
async function startService(upstream: FakeJobProvider, clock = new FakeClock()) {
  const service = await startTestService({ providers: [upstream], clock });
  const admin = await openAdmin({ directory: service.data });
  onTestFinished(() => admin.close());
  await admin.topUp("default", 1_000_000, { isReal: true });
  return service;
}

async function runningJob(upstream: FakeJobProvider, clock = new FakeClock()) {
  const service = await startService(upstream, clock);
  const { id } = await service.submit({ model: MODEL, items: items(2) });
  await expect.poll(() => upstream.polls).toBe(1);
  return { service, id };
}

describe("an upstream's job of a cancelled batch", () => {
  it("is not told any more by a process that has stopped, also by one that makes no images", async () => {
    const upstream = busyUpstream();
    const { service, id } = await runningJob(upstream);
    await service.close(0);
    const clock = new FakeClock();
    const { data } = service;
    const without = await startTestService({ providers: [upstream], clock, data, workers: false });
    refuseToCancel(upstream);
    await refused(without, id);
    await expect.poll(() => clock.sleeperCount).toBeGreaterThan(0);
    await without.close(0);
    expect(clock.sleeperCount).toBe(0);
  });

  it("[CANCEL-5] is told to stop once, and a repeated cancellation does not tell it again", async () => {
    const upstream = busyUpstream();
    const { service, id } = await runningJob(upstream);
    for (let i = 0; i < 3; i++) await cancelled(service, id);
    expect(upstream.cancelled).toEqual(["upstream/1"]);
  });

  it("[CANCEL-5] that could not be told is told by a repeated cancellation", async () => {
    const upstream = busyUpstream();
    const { service, id } = await runningJob(upstream);
    const relent = refuseToCancel(upstream);
    await refused(service, id);
    await refused(service, id);
    relent();
    await cancelled(service, id);
    expect(upstream.cancelled).toEqual(["upstream/1"]);
    const { stores } = await openBeside(service.data);
    expect((await stores.read.batches.events(id)).map((event) => event.to)).toEqual([
      "queued",
      "running",
      "cancelled",
    ]);
    expect((await stores.read.ledger.list({ batchIds: [id] })).map((entry) => entry.kind)).toEqual([
      "hold",
      "release",
    ]);
  });

  it("[CANCEL-5] that could not be told is told again later, with nobody asking", async () => {
    const clock = new FakeClock();
    const upstream = busyUpstream();
    const { service, id } = await runningJob(upstream, clock);
    const relent = refuseToCancel(upstream);
    await refused(service, id);
    clock.advance(60_000);
    await expect.poll(() => clock.nextWakeInMs).toBe(60_000);
    relent();
    clock.advance(60_000);
    await expect.poll(() => upstream.cancelled).toEqual(["upstream/1"]);
  });

  it("[CANCEL-5] that could not be told is told at the next start, and only at that one", async () => {
    const upstream = busyUpstream();
    const { service, id } = await runningJob(upstream);
    const relent = refuseToCancel(upstream);
    await refused(service, id);
    await service.close(0);
    relent();
    for (let i = 0; i < 2; i++) {
      const next = await startTestService({ data: service.data, providers: [upstream] });
      await expect.poll(() => upstream.cancelled).toEqual(["upstream/1"]);
      await next.close(0);
    }
    expect(upstream.cancelled).toHaveLength(1);
  });

  it("[CANCEL-5] that has ended by itself needs no telling, although the upstream refuses", async () => {
    const upstream = busyUpstream();
    const { service, id } = await runningJob(upstream);
    refuseToCancel(upstream);
    upstream.status = () => ({ state: "succeeded" });
    await cancelled(service, id);
  });

  it("is found and stopped when the answer to its submission is still on its way", async () => {
    const upstream = busyUpstream();
    const { came: accepted, goesOn: answer } = holdCreations(upstream, "afterCreate");
    const service = await startTestService({ providers: [upstream] });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await accepted.promise;
    await cancelled(service, id);
    expect(upstream.cancelled).toEqual(["upstream/1"]);
    answer.open();
    await service.close(0);
    expect([upstream.jobs.size, upstream.cancelled.length]).toEqual([1, 1]);
  });

  it("is stopped when the upstream takes it only after the cancellation", async () => {
    const upstream = busyUpstream();
    const { came: asked, goesOn: arrives } = holdCreations(upstream, "beforeCreate");
    const service = await startTestService({ providers: [upstream] });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await asked.promise;
    await cancelled(service, id);
    expect(upstream.cancelled).toEqual([]);
    arrives.open();
    await expect.poll(() => upstream.cancelled).toEqual(["upstream/1"]);
  });

  it("is looked for once more when the upstream did not know it yet", async () => {
    const clock = new FakeClock();
    const upstream = busyUpstream();
    const { came: asked, goesOn: lost } = holdCreations(upstream, "beforeCreate");
    const service = await startTestService({ providers: [upstream], clock });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await asked.promise;
    await cancelled(service, id);
    await expect.poll(() => clock.nextWakeInMs).toBe(60_000);
    const { stores } = await openBeside(service.data);
    const [job] = await stores.read.upstreamJobs.ofBatch(id);
    lost.fail(lostAnswer());
    await expect.poll(() => service.queue().running).toBe(0);
    upstream.jobs.set("upstream/late", { jobId: job?.id ?? "", input: "", model: "", items: [] });
    clock.advance(60_000);
    await expect.poll(() => upstream.cancelled).toEqual(["upstream/late"]);
  });

  it("is stopped at the next start when its name never became known", async () => {
    const upstream = busyUpstream();
    const { came: accepted, goesOn: answer } = holdCreations(upstream, "afterCreate");
    const list = refuseToList(upstream);
    const first = await startTestService({ providers: [upstream] });
    const { id } = await first.submit({ model: MODEL, items: items(1) });
    await accepted.promise;
    await refused(first, id);
    answer.fail(new Error("the connection broke"));
    await first.close(0);
    expect(upstream.cancelled).toEqual([]);
    list();
    await startTestService({ data: first.data, providers: [upstream] });
    await expect.poll(() => upstream.cancelled).toEqual(["upstream/1"]);
  });

  it("is stopped although the upstream did not know it at the cancellation", async () => {
    const clock = new FakeClock();
    const upstream = busyUpstream();
    const { service, id } = await runningJob(upstream, clock);
    const { cancel, poll } = upstream;
    const missing = { trouble: "no-model", upstreamStatus: 404 } as const;
    upstream.poll = () => Promise.reject(new ProviderError("PROVIDER_ITEM_FAILED", "no job", missing));
    upstream.cancel = upstream.poll as unknown as typeof cancel;
    await cancelled(service, id);
    await expect.poll(() => clock.nextWakeInMs).toBe(60_000);
    Object.assign(upstream, { cancel, poll });
    clock.advance(60_000);
    await expect.poll(() => upstream.cancelled).toEqual(["upstream/1"]);
  });

  it("counts as gone when the upstream does not know it for an hour", async () => {
    const clock = new FakeClock();
    const upstream = busyUpstream();
    const { service, id } = await runningJob(upstream, clock);
    const missing = { trouble: "no-model", upstreamStatus: 404 } as const;
    upstream.poll = () => Promise.reject(new ProviderError("PROVIDER_ITEM_FAILED", "no job", missing));
    upstream.cancel = upstream.poll as unknown as typeof upstream.cancel;
    await cancelled(service, id);
    await expect.poll(() => clock.nextWakeInMs).toBe(60_000);
    clock.advance(3_600_000);
    await expect.poll(() => stepsOf(service, id)).toEqual(["closed"]);
  });

  it("has an hour from the first request to stop it, however long the service was off", async () => {
    const clock = new FakeClock();
    const upstream = busyUpstream();
    upstream.cancel = () => Promise.reject(new Error("not now"));
    const { service, id } = await runningJob(upstream, clock);
    await refused(service, id);
    const steps = () => stepsOf(service, id);
    await service.close(0);
    const { stores } = await openBeside(service.data);
    const [job] = await stores.read.upstreamJobs.ofBatch(id);
    expect(job?.stopAskedAtMs).toBe(clock.nowMs());
    // The process died before it could ask.
    await stores.write((tx) => tx.upstreamJobs.update(job?.id ?? "", { stopAskedAtMs: null }));
    clock.advance(5 * 3_600_000);
    const { polls } = upstream;
    await startTestService({ data: service.data, providers: [upstream], clock });
    await expect.poll(() => upstream.polls).toBeGreaterThan(polls);
    await expect.poll(() => clock.nextWakeInMs).toBe(60_000);
    expect(await steps()).not.toEqual(["closed"]);
    clock.advance(3_600_000);
    await expect.poll(steps).toEqual(["closed"]);
  });
});

describe("a job at a paid upstream whose batch is cancelled", () => {
  const isFirst = (key: string) => key === "i1";
  /** An upstream whose jobs have made the first image when they are told to stop. */
  function paidUpstream(): FakeJobProvider {
    const upstream = new FakeJobProvider({ isPaid: true });
    upstream.status = () => ({ state: "running" });
    const { resultOf } = upstream;
    upstream.resultOf = async (item) => (isFirst(item.key) ? resultOf(item) : null);
    return upstream;
  }
  const kept = { status: "cancelled", success_count: 1, fail_count: 1, actual_cost: 0.0335 };

  it("[CANCEL-6] gives what it had made until then, which is kept and billed", async () => {
    const upstream = paidUpstream();
    const { service, id } = await runningJob(upstream);
    await cancelled(service, id);
    expect(await service.batch(id)).toMatchObject(kept);
    expect(upstream.cancelled).toEqual(["upstream/1"]);
    const [, unmade] = await service.items(id);
    expect(unmade).toMatchObject({ error: { code: "CANCELLED" } });
    expect(JSON.stringify(unmade)).not.toMatch(/may (be )?bill/);
    await service.close(0);
    await service.expectBooks();
  });

  it("[CANCEL-6] says which images may be billed where not all that it had made can be fetched", async () => {
    const upstream = paidUpstream();
    const { results } = upstream;
    upstream.results = async function* (name) {
      yield* results.call(upstream, name);
      yield { endsEarly: "1 of 2" };
    };
    const clock = new FakeClock();
    const { service, id } = await runningJob(upstream, clock);
    const answer = cancel(service, id);
    await expect
      .poll(async () => {
        clock.advance(10_000);
        return service.batch(id);
      })
      .toMatchObject(kept);
    expect((await answer).status).toBe(200);
    expect((await service.items(id))[1]).toMatchObject({
      error: { code: "CANCELLED", message: expect.stringContaining("may bill it") },
      may_be_billed: expect.any(Number),
    });
  });

  it("[CANCEL-6] is created by no request that had not left", async () => {
    const upstream = paidUpstream();
    const asked = gate();
    upstream.waitForRate = () => asked.promise;
    const service = await startService(upstream);
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    await expect.poll(() => upstream.inputs.size).toBe(1);
    await cancelled(service, id);
    asked.open();
    await service.close(0);
    expect(upstream.jobs.size).toBe(0);
  });

  it("[CANCEL-6] is awaited when its creation is under way, and told to stop then", async () => {
    const upstream = paidUpstream();
    const { came, goesOn } = holdCreations(upstream, "afterCreate");
    const service = await startService(upstream);
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    await came.promise;
    const answer = cancelled(service, id);
    await expect.poll(async () => (await service.batch(id)).waiting?.code).toBe("CANCELLING");
    goesOn.open();
    await answer;
    expect(await service.batch(id)).toMatchObject(kept);
  });

  it("[CANCEL-5] that could not be told is told until it listens, and then gives what it had made", async () => {
    const clock = new FakeClock();
    const upstream = paidUpstream();
    const { service, id } = await runningJob(upstream, clock);
    const relent = refuseToCancel(upstream);
    const answer = refused(service, id);
    await answer;
    expect(await service.batch(id)).toMatchObject({ status: "running", waiting: { code: "CANCELLING" } });
    relent();
    await expect
      .poll(async () => {
        clock.advance(10_000);
        return service.batch(id);
      })
      .toMatchObject(kept);
  });

  it("[CANCEL-6] is awaited by the next start, too", async () => {
    const upstream = paidUpstream();
    const { service, id } = await runningJob(upstream);
    const { cancel: stop } = upstream;
    upstream.cancel = async () => {};
    const answer = cancel(service, id).catch(() => null);
    await expect.poll(async () => (await service.batch(id)).waiting?.code).toBe("CANCELLING");
    await service.close(0);
    await answer;
    upstream.cancel = stop;
    const next = await startTestService({ data: service.data, providers: [upstream] });
    await expect.poll(() => next.batch(id)).toMatchObject(kept);
  });

  it("[CANCEL-6] is given up when it has not ended for an hour", async () => {
    const clock = new FakeClock();
    const upstream = paidUpstream();
    const { service, id } = await runningJob(upstream, clock);
    upstream.cancel = async () => {};
    upstream.resultOf = async () => null;
    const answer = cancel(service, id);
    await expect.poll(async () => (await service.batch(id)).waiting?.code).toBe("CANCELLING");
    clock.advance(20_000);
    expect((await answer).status).toBe(200);
    clock.advance(3_600_000);
    await expect
      .poll(() => service.batch(id))
      .toMatchObject({ status: "cancelled", success_count: 0, fail_count: 2 });
    await service.close(0);
    await service.expectBooks();
  });
});

/** Two jobs upstream for one record: the answer to the first request was lost. */
const TWICE = {
  id: "job1",
  step: "done",
  hasReferences: false,
  input: "input/1",
  uploadedAtMs: 1,
  upstreamName: "upstream/1",
  endedNames: [],
  creates: 2,
  refusals: 0,
  refusedSinceMs: null,
  sentAtMs: 1,
  state: null,
  said: null,
  error: null,
  results: 0,
  createdAtMs: 1,
  failures: 0,
  polledAtMs: null,
  missingSinceMs: null,
  gone: null,
  endedAtMs: null,
  closedAtMs: null,
  stopAskedAtMs: null,
  isStopTold: false,
} satisfies Omit<UpstreamJobRecord, "batchId">;

onEachDialect("the closing of a job by two processes at once", (open) => {
  it("forgets no job that the other one has found", async () => {
    const stores = await open();
    const { id: batchId } = await openBatchRecord(stores);
    await stores.write((tx) => tx.upstreamJobs.insert({ ...TWICE, batchId }));
    const upstream = new FakeJobProvider();
    for (const name of ["upstream/1", "upstream/2"])
      upstream.jobs.set(name, { jobId: TWICE.id, input: TWICE.input, items: [], model: "m" });
    upstream.status = () => ({ state: "running" });
    const others = {
      random: () => 0,
      outageMs: 1,
      unknownOutcome: "stop",
      goingOn: { includes: () => true },
    };
    const deps = { stores, clock: new FakeClock(2), log: silentLog, ...others } as unknown as WorkerDeps;
    const close = (provider: FakeJobProvider) =>
      closeJob({ deps, provider, jobId: TWICE.id, signal: new AbortController().signal });

    const answer = gate<void>();
    const slow = new FakeJobProvider();
    slow.cancel = () => answer.promise;
    slow.poll = (name) => upstream.poll(name);
    slow.list = () => upstream.list();
    const late = close(slow);
    expect(await close(upstream)).toBe(true);
    answer.open();
    expect(await late).toBe(true);

    expect(upstream.cancelled).toEqual(["upstream/1", "upstream/2"]);
    expect(await stores.read.upstreamJobs.byId(TWICE.id)).toMatchObject({
      step: "closed",
      upstreamName: null,
      endedNames: ["upstream/1", "upstream/2"],
    });
  });
});
