import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { isMarked } from "../../support/upstreams/chain.ts";
import * as hostile from "../../support/upstreams/hostile.ts";
import {
  FOREVER,
  JOB_UPSTREAMS,
  type JobCase,
  type JobUpstreamType,
  JobWorld,
  MINUTE_MS,
  PATIENCE,
} from "../../support/upstreams/job-world.ts";

const STUCK = "a stuck job";
const WAITING = "images that no job has yet";
const LOST = "a job whose creation was not answered";
const GONE = "a creation that was never taken";
const late = (made: boolean) => hostile.late(10 * MINUTE_MS, { made });

describe("jobs that are ended on request", () => {
  const cases = JOB_UPSTREAMS.flatMap((type): JobCase[] => [
    {
      ...{ name: STUCK, type },
      arrange: ({ book }) => {
        book.plan = () => ({ pendingMs: FOREVER, made: (_, at) => at === 0 });
      },
    },
    {
      ...{ name: WAITING, type, config: { jobImages: 1, concurrency: 1 } },
      arrange: ({ book }) => {
        book.plan = () => ({ pendingMs: FOREVER });
      },
    },
    { name: LOST, type, arrange: (fake) => fake.setBehaviour(late(true), "create") },
    { name: GONE, type, arrange: (fake) => fake.setBehaviour(late(false), "create") },
  ]);
  let world: JobWorld;
  const end = async (type: JobUpstreamType, name: string) => {
    const { id } = world.story(type, name);
    const answer = await world.chain.ask(`/v1/images/batches/${id}/end-jobs`, { method: "POST" });
    expect([answer.status, await answer.json()]).toMatchObject([200, { id, in_jobs: true }]);
  };
  beforeAll(async () => {
    world = await JobWorld.start(cases, { isProcess: true });
    for (const type of JOB_UPSTREAMS) {
      for (const name of [STUCK, WAITING])
        await vi.waitUntil(() => world.story(type, name).fake.book.jobs.length === 1, PATIENCE);
      for (const name of [LOST, GONE]) await world.story(type, name).came("create");
      for (const { name } of cases.filter((each) => each.type === type)) await end(type, name);
    }
  }, 300_000);
  afterAll(() => world?.close());

  const noteOf = (notes: readonly string[] = []) => notes.map((note) => note.split(":")[0]).join();

  it.each(JOB_UPSTREAMS)("keep what they have made, and say what %s may still bill", async (type) => {
    const story = world.story(type, STUCK);
    expect(await world.ended(story)).toMatchObject({ status: "completed", success_count: 1, fail_count: 1 });
    const [made, failed] = await world.checkBill(story);
    expect([made?.status, failed?.status, noteOf(failed?.notes)]).toEqual([
      "success",
      "failed",
      "may be billed",
    ]);
  });

  it.each(JOB_UPSTREAMS)(
    "leave no image behind of which %s was not asked, nor a note that it may bill it",
    async (type) => {
      const story = world.story(type, WAITING);
      expect(await world.ended(story)).toMatchObject({ success_count: 0, fail_count: 2 });
      const items = await world.checkBill(story);
      expect(items.map(({ error, notes }) => [error?.code, noteOf(notes)])).toEqual([
        ["PROVIDER_ITEM_FAILED", "may be billed"],
        ["CANCELLED", ""],
      ]);
      expect(story.fake.book.jobs).toHaveLength(1);
    },
  );

  it("are looked for where their creation was not answered, stopped once found, and never created again", async () => {
    await world.restart();
    for (const type of JOB_UPSTREAMS) {
      const lost = world.story(type, LOST);
      lost.fake.setBehaviour(null, "create");
      world.story(type, GONE).fake.setBehaviour(null, "create");
      expect((await world.ended(lost)).status).toMatch(/completed|failed/);
      await world.checkBill(lost);
      expect(lost.fake.book.jobs).toHaveLength(1);
    }
    await world.restart(11 * MINUTE_MS);
    for (const type of JOB_UPSTREAMS) {
      const gone = world.story(type, GONE);
      expect(await world.ended(gone)).toMatchObject({ success_count: 0, fail_count: 2 });
      const items = await world.checkBill(gone);
      expect(items.map(({ notes }) => noteOf(notes))).toEqual(["may be billed", "may be billed"]);
      expect([gone.fake.book.jobs.length, items.filter(isMarked).length]).toEqual([0, 0]);
    }
    await world.checkBooks();
  }, 300_000);
});
