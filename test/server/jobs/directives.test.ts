import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/kernel/clock.ts";
import { createProceduralProvider } from "../../../src/providers/procedural/provider.ts";
import { askJobs, batchIdOf, createInline, endedJob, inlinedOf, jobOf } from "../../support/jobs.ts";
import { content } from "../../support/realtime.ts";
import { openBeside, startTestService } from "../../support/service.ts";

const drawing = () =>
  createProceduralProvider({ name: "procedural", concurrency: 2, models: () => true, clock: systemClock });

const start = () => startTestService({ providers: [drawing()] });

/** A request for each prompt, with its position as the key. */
const requests = (...prompts: string[]) =>
  prompts.map((prompt, i) => ({ request: content(prompt), metadata: { key: String(i) } }));

async function ended(...prompts: string[]) {
  const service = await start();
  const job = await endedJob(service, await createInline(service, requests(...prompts)));
  await service.expectBooks();
  const keys = inlinedOf(job).map(({ metadata }) => Number((metadata as { key: string }).key));
  return { job, keys };
}

describe("directives for jobs", () => {
  it("let a job fail or expire without results, and without a price", async () => {
    const failed = await ended("a fox", "[[job-fail]] an owl");
    expect(failed.job).toMatchObject({
      done: true,
      metadata: { state: "BATCH_STATE_FAILED", batchStats: {} },
      error: { message: expect.stringContaining("directive") },
    });
    const expired = await ended("[[job-expire]] an owl", "a fox");
    expect(expired.job).toMatchObject({ metadata: { state: "BATCH_STATE_EXPIRED" }, error: { code: 4 } });
    for (const { job } of [failed, expired]) expect(job.metadata).not.toHaveProperty("output");
  });

  it("lose, double and shuffle results", async () => {
    expect((await ended("a", "[[line-lost]] b", "c")).keys).toEqual([0, 2]);
    expect((await ended("a", "[[line-twice]] b", "c")).keys).toEqual([0, 1, 1, 2]);
    const { job, keys } = await ended("a", "b [[lines-shuffled]]", "c", "d");
    expect(keys).not.toEqual([0, 1, 2, 3]);
    expect([...keys].sort()).toEqual([0, 1, 2, 3]);
    expect(job.metadata.batchStats).toMatchObject({ successfulRequestCount: "4" });
  });

  it("hold a job up, which can still be cancelled", async () => {
    const service = await start();
    const created = await createInline(service, requests("a fox", "[[job-stuck:10m]] an owl"));
    await service.until(batchIdOf(created), "running");
    const { stores } = await openBeside(service.data);
    const dueMs = await stores.read.items.nextDueMs(systemClock.nowMs());
    expect((dueMs ?? 0) - systemClock.nowMs()).toBeGreaterThan(9 * 60_000);
    expect((await jobOf(service, created)).metadata.state).toBe("BATCH_STATE_RUNNING");
    await askJobs(service, `${created.name}:cancel`, { method: "POST" });
    expect((await endedJob(service, created)).metadata.state).toBe("BATCH_STATE_CANCELLED");
  });

  it("that are malformed fail their line, and have no effect on other requests", async () => {
    const { job } = await ended("[[job-stuck:soon]] a fox", "[[line-lost:1]] an owl", "a cat");
    const results = inlinedOf(job);
    expect(results.map(({ error }) => error?.code)).toEqual([3, 3, undefined]);
    const service = await start();
    const { id } = await service.submit({
      model: "vendorx-3.1-flash-image",
      items: [{ prompt: "[[job-fail]] [[line-lost]] a fox" }],
    });
    expect(await service.until(id)).toMatchObject({ status: "completed", success_count: 1 });
  });
});
