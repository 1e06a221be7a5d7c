import { describe, expect, it } from "vitest";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeJobProvider, lostAnswer } from "../../support/fake-job-provider.ts";
import { gate } from "../../support/gate.ts";
import { items, MODEL, openBeside, startTestService, type TestService } from "../../support/service.ts";

const HOUR_MS = 3_600_000;

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

async function runningJob(upstream: FakeJobProvider, clock = new FakeClock()) {
  const service = await startTestService({ providers: [upstream], clock });
  const { id } = await service.submit({ model: MODEL, items: items(2) });
  await expect.poll(() => upstream.polls).toBe(1);
  return { service, id };
}

describe("an upstream's job of a cancelled batch", () => {
  it("[CANCEL-5] the job is told to stop once, and a repeated cancellation does not tell it again", async () => {
    const upstream = busyUpstream();
    const { service, id } = await runningJob(upstream);
    for (let i = 0; i < 3; i++) await cancelled(service, id);
    expect(upstream.cancelled).toEqual(["upstream/1"]);
  });

  it("[CANCEL-5] a repeated cancellation by the caller repeats a failed cancellation of the job", async () => {
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
    expect((await stores.read.ledger.list({ batchId: id })).map((entry) => entry.kind)).toEqual([
      "hold",
      "release",
    ]);
  });

  it("[CANCEL-5] the service repeats a failed cancellation of the job later by itself", async () => {
    const clock = new FakeClock();
    const upstream = busyUpstream();
    const { service, id } = await runningJob(upstream, clock);
    const relent = refuseToCancel(upstream);
    await refused(service, id);
    await expect.poll(() => clock.nextWakeInMs).toBe(30_000);
    clock.advance(30_000);
    await expect.poll(() => clock.nextWakeInMs).toBe(60_000);
    relent();
    clock.advance(60_000);
    await expect.poll(() => upstream.cancelled).toEqual(["upstream/1"]);
  });

  it("[CANCEL-5] the next start repeats a failed cancellation of the job, and later starts do not", async () => {
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

  it("[CANCEL-5] a job that has ended by itself is not told again, although the upstream refused", async () => {
    const upstream = busyUpstream();
    const { service, id } = await runningJob(upstream);
    refuseToCancel(upstream);
    upstream.status = () => ({ state: "succeeded" });
    await cancelled(service, id);
  });

  it("[CANCEL-6] a job whose submission is not answered yet is found and stopped", async () => {
    const upstream = busyUpstream();
    const accepted = gate();
    const answer = gate();
    upstream.afterSubmit = () => {
      accepted.open();
      return answer.promise;
    };
    const service = await startTestService({ providers: [upstream] });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await accepted.promise;
    await cancelled(service, id);
    expect(upstream.cancelled).toEqual(["upstream/1"]);
    answer.open();
    await service.close(0);
    expect([upstream.jobs.size, upstream.cancelled.length]).toEqual([1, 1]);
  });

  it("[CANCEL-6] a job that the upstream takes after the cancellation is stopped", async () => {
    const upstream = busyUpstream();
    const asked = gate();
    const arrives = gate();
    const submit = upstream.submit.bind(upstream);
    upstream.submit = async (jobId, jobItems) => {
      asked.open();
      await arrives.promise;
      return submit(jobId, jobItems);
    };
    const service = await startTestService({ providers: [upstream] });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await asked.promise;
    await cancelled(service, id);
    expect(upstream.cancelled).toEqual([]);
    arrives.open();
    await expect.poll(() => upstream.cancelled).toEqual(["upstream/1"]);
    expect(upstream.polls).toBe(0);
  });

  it("[CANCEL-6] a job that the upstream does not know yet is looked for once more", async () => {
    const clock = new FakeClock();
    const upstream = busyUpstream();
    const asked = gate();
    upstream.submit = (_jobId, _items, signal?: AbortSignal) =>
      new Promise((_, reject) => {
        asked.open();
        signal?.addEventListener("abort", () => reject(signal.reason));
      });
    const service = await startTestService({ providers: [upstream], clock });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    await asked.promise;
    await cancelled(service, id);
    await expect.poll(() => clock.nextWakeInMs).toBe(30_000);
    const { stores } = await openBeside(service.data);
    const jobId = (await stores.read.upstreamJobs.ofBatch(id))?.jobId ?? "";
    upstream.jobs.set("upstream/late", { jobId, items: [] });
    clock.advance(30_000);
    await expect.poll(() => upstream.cancelled).toEqual(["upstream/late"]);
    clock.advance(HOUR_MS);
  });

  it("[CANCEL-6] a job whose name never became known is stopped at the next start", async () => {
    const upstream = busyUpstream();
    const accepted = gate();
    const answer = gate();
    upstream.afterSubmit = () => {
      accepted.open();
      return answer.promise;
    };
    const { find } = upstream;
    upstream.find = () => Promise.reject(new Error("not now"));
    const first = await startTestService({ providers: [upstream] });
    const { id } = await first.submit({ model: MODEL, items: items(1) });
    await accepted.promise;
    await refused(first, id);
    answer.fail(new Error("the connection broke"));
    await first.close(0);
    expect(upstream.cancelled).toEqual([]);
    upstream.find = find;
    await startTestService({ data: first.data, providers: [upstream] });
    await expect.poll(() => upstream.cancelled).toEqual(["upstream/1"]);
  });
});

describe("an upstream's job of a batch that failed", () => {
  it("[CANCEL-6] a job whose submission only seemed to fail is stopped", async () => {
    const clock = new FakeClock();
    const upstream = busyUpstream();
    upstream.afterSubmit = () => {
      throw lostAnswer();
    };
    const find = upstream.find;
    upstream.find = () => Promise.reject(lostAnswer());
    const service = await startTestService({ providers: [upstream], clock });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    for (const delay of [1000, 2000]) {
      await expect.poll(() => clock.nextWakeInMs).toBe(delay);
      clock.advance(delay);
    }
    await service.until(id, "failed");
    await expect.poll(() => clock.nextWakeInMs).toBe(30_000);
    upstream.find = find;
    clock.advance(30_000);
    await expect.poll(() => upstream.cancelled).toEqual(["upstream/1"]);
  });
});
