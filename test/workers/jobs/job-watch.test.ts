import { describe, expect, it } from "vitest";
import type { WorkerDeps } from "../../../src/workers/deps.ts";
import { JobWatch } from "../../../src/workers/jobs/job-watch.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeJobProvider } from "../../support/fake-job-provider.ts";

/** A watch of `count` jobs that run at the upstream; `lookAtAll` looks at each of them after this time. */
async function watchOf(count: number) {
  const clock = new FakeClock();
  const upstream = new FakeJobProvider();
  const names: string[] = [];
  for (let n = 0; n < count; n++)
    names.push(await upstream.create({ jobId: `job-${n}`, model: "m", input: "" }));
  const deps = { clock, health: { blockOf: () => null } } as unknown as WorkerDeps;
  const watch = new JobWatch(deps, upstream, new AbortController().signal);
  const lookAtAll = async (spreadMs = 0) => {
    const looks = names.map((name, i) =>
      watch.look(
        { name, sentAtMs: clock.nowMs(), dueMs: clock.nowMs() + 10_000 + i * spreadMs },
        new AbortController().signal,
      ),
    );
    await expect.poll(() => clock.nextWakeInMs).toBe(10_000);
    clock.advance(10_000);
    return (await Promise.all(looks)).map(({ name }) => name);
  };
  return { upstream, names, lookAtAll };
}

describe("the watch of a provider's jobs", () => {
  it("[JOB-8] looks at many jobs with one list, also when some are due a little later", async () => {
    const { upstream, names, lookAtAll } = await watchOf(6);
    for (let round = 1; round <= 3; round++) {
      expect(await lookAtAll(round * 100)).toEqual(names);
      expect([upstream.lists, upstream.polls]).toEqual([round, 0]);
    }
  });

  it("[JOB-8] asks for a few jobs one by one, and for those that the list does not show", async () => {
    const few = await watchOf(3);
    expect(await few.lookAtAll()).toEqual(few.names);
    expect([few.upstream.lists, few.upstream.polls]).toEqual([0, 3]);

    const many = await watchOf(6);
    many.upstream.unlisted.add("upstream/2").add("upstream/5");
    expect(await many.lookAtAll()).toEqual(many.names);
    expect([many.upstream.lists, many.upstream.polls]).toEqual([1, 2]);
  });
});
