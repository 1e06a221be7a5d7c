import { expect, it } from "vitest";
import type { UpstreamJobRecord } from "../../../src/domain/ports/batches.ts";
import { silentLog } from "../../../src/kernel/log.ts";
import { closeJob } from "../../../src/workers/jobs/close-job.ts";
import { onEachDialect } from "../../support/dialects.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeJobProvider } from "../../support/fake-job-provider.ts";
import { gate } from "../../support/gate.ts";
import { openBatchRecord } from "../../support/stores.ts";

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
  polledAtMs: null,
  endedAtMs: null,
  closedAtMs: null,
  stopAskedAtMs: null,
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
    const deps = { stores, clock: new FakeClock(2), log: silentLog };
    const { signal } = new AbortController();

    const answer = gate<void>();
    const slow = new FakeJobProvider();
    slow.cancel = () => answer.promise;
    slow.poll = (name) => upstream.poll(name);
    slow.list = () => upstream.list();
    const late = closeJob(deps, slow, TWICE.id, signal);
    expect(await closeJob(deps, upstream, TWICE.id, signal)).toBe(true);
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
