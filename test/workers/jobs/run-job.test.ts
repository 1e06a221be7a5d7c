import { describe, expect, it } from "vitest";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeJobProvider, lostAnswer } from "../../support/fake-job-provider.ts";
import { items, MODEL, openBeside, startTestService } from "../../support/service.ts";

const failure = (service: { ask(path: string): Promise<Response> }, id: string) =>
  service.ask(`/${id}/items?status=failed`).then((answer) => answer.json());

describe("a provider that takes whole batches", () => {
  it("[JOB-1] the provider gets a batch as one job, and results are matched by key", async () => {
    const clock = new FakeClock();
    const upstream = new FakeJobProvider();
    upstream.status = () => ({ state: upstream.polls < 3 ? "running" : "succeeded" });
    upstream.resultOf = async ({ key, request }) => {
      if (key === "i2") return { key, error: new ProviderError("SAFETY_BLOCKED", "refused") };
      return { key, output: { images: [Buffer.from(request.prompt)], modelVersion: null } };
    };
    const service = await startTestService({ providers: [upstream], clock });
    const { id } = await service.submit({ model: MODEL, items: items(3) });
    for (const polls of [1, 2]) {
      await expect.poll(() => [upstream.polls, clock.nextWakeInMs]).toEqual([polls, upstream.pollMs]);
      clock.advance(upstream.pollMs);
    }
    expect(await service.until(id)).toMatchObject({ status: "completed", fail_count: 3 });
    expect([...upstream.jobs.values()].map((job) => job.items.map((item) => item.key))).toEqual([
      ["i1", "i2", "i3"],
    ]);
    expect(await failure(service, id)).toMatchObject({
      data: [
        { error: { code: "INVALID_IMAGE_OUTPUT" } },
        { error: { code: "SAFETY_BLOCKED" } },
        { error: { code: "INVALID_IMAGE_OUTPUT" } },
      ],
    });
  });

  it("[JOB-2] a job whose answer was lost is not submitted twice", async () => {
    const clock = new FakeClock();
    const upstream = new FakeJobProvider();
    upstream.afterSubmit = () => {
      upstream.afterSubmit = () => {};
      throw lostAnswer();
    };
    const service = await startTestService({ providers: [upstream], clock });
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    await expect.poll(() => clock.nextWakeInMs).toBe(1000);
    clock.advance(1000);
    expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 2 });
    expect(upstream.jobs.size).toBe(1);
  });

  it("[JOB-2] after a restart the provider is asked for the job of the earlier process", async () => {
    const clock = new FakeClock();
    const upstream = new FakeJobProvider();
    upstream.status = () => ({ state: "running" });
    const first = await startTestService({ providers: [upstream], clock });
    const { id } = await first.submit({ model: MODEL, items: items(2) });
    await expect.poll(() => [upstream.polls, clock.nextWakeInMs]).toEqual([1, upstream.pollMs]);
    await first.close(0);
    upstream.status = () => ({ state: "succeeded" });
    const second = await startTestService({ data: first.data, providers: [upstream] });
    expect(await second.until(id)).toMatchObject({
      status: "completed",
      success_count: 2,
      actual_cost: 0.067,
    });
    expect(upstream.jobs.size).toBe(1);
  });

  it("[JOB-3] a failed job fails its batch, and the whole hold goes back", async () => {
    const upstream = new FakeJobProvider();
    upstream.status = () => ({ state: "expired", message: "the job expired" });
    const service = await startTestService({ providers: [upstream] });
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    expect(await service.until(id)).toMatchObject({
      status: "failed",
      fail_count: 2,
      actual_cost: 0,
      settled_at: expect.any(Number),
      error: { code: "BATCH_IMAGE_PROVIDER_SUBMIT_FAILED", message: "the job expired", source: "provider" },
    });
    const { stores, blobs } = await openBeside(service.data);
    expect(await stores.read.accounts.byName("default")).toMatchObject({
      balanceMicroUsd: 1e9,
      heldMicroUsd: 0,
    });
    expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
  });

  it("[JOB-4] an item that the job left out fails alone", async () => {
    const upstream = new FakeJobProvider();
    const resultOf = upstream.resultOf;
    upstream.resultOf = async (item) => (item.key === "i1" ? null : resultOf(item));
    const service = await startTestService({ providers: [upstream] });
    const { id } = await service.submit({ model: MODEL, items: items(2) });
    expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 1, fail_count: 1 });
    expect(await failure(service, id)).toMatchObject({
      data: [{ custom_id: "i1", error: { code: "RESULT_MISSING", source: "provider" } }],
    });
  });
});
