import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { isMarked } from "../../support/upstreams/chain.ts";
import type { JobPlan, LineFault } from "../../support/upstreams/job-book.ts";
import {
  FOREVER,
  JOB_UPSTREAMS,
  type JobCase,
  JobWorld,
  MINUTE_MS,
  PATIENCE,
} from "../../support/upstreams/job-world.ts";

const isEven: JobPlan["made"] = (_, at) => at % 2 === 0;
const REASON = "The machines of the model are gone.";

/** How a job ends, and how many of its two images it has made. */
const ENDS: Record<string, [JobPlan, number]> = {
  fails: [{ end: "failed", reason: REASON }, 0],
  expires: [{ end: "expired" }, 0],
  "is cancelled by somebody else": [{ end: "cancelled" }, 0],
  "is cancelled by somebody else when half was made": [{ end: "cancelled", made: isEven }, 1],
  "expires when half was made": [{ end: "expired", made: isEven }, 1],
  "fails when half was made": [{ end: "failed", reason: REASON, made: isEven }, 1],
};
const FAULTS: LineFault[] = [
  "lost",
  "twice",
  "unreadable",
  "stranger",
  "error",
  "statusError",
  "refused",
  "noImage",
  "huge",
];
const GOOD = ["twice", "stranger", "huge", "good", "better"];

const planned = (plan: JobPlan): JobCase["arrange"] => {
  return ({ book }) => {
    book.plan = () => plan;
  };
};

/** The service waits, cancels and gives up in one way at all upstreams; how each tells of a cancelled job is seen at its ends. */
const WITHOUT_END = process.env.IMGBATCH_SOAK ? JOB_UPSTREAMS : JOB_UPSTREAMS.slice(0, 1);

for (const type of JOB_UPSTREAMS) {
  describe(`a job at ${type}`, () => {
    // A failed job of OpenAI has no results.
    const ends = Object.entries(ENDS).filter(
      ([, [plan]]) => !(plan.end === "failed" && plan.made) || type === "native-batch",
    );
    const prompts = [...FAULTS, "good", "better"];
    const fault: JobPlan["fault"] = ({ prompt }) => FAULTS.find((one) => one === prompt) ?? null;
    const cases: JobCase[] = [
      { name: "bad lines", type, prompts, arrange: planned({ isShuffled: true, fault }) },
      ...ends.map(([name, [plan]]) => ({ name, type, arrange: planned(plan) })),
      {
        ...{ name: "parts", type, config: { jobImages: 2 }, prompts: ["a", "b", "c", "d", "e"] },
        arrange: ({ book }) => {
          book.plan = (_, at) => (at === 1 ? { end: "failed", reason: REASON } : {});
        },
      },
    ];
    let world: JobWorld;
    beforeAll(async () => {
      world = await JobWorld.start(cases);
    }, 300_000);
    afterAll(() => world?.close());

    it("loses, doubles, breaks and shuffles results: each item has its own image, or its own error", async () => {
      const story = world.story(type, "bad lines");
      await world.ended(story);
      const items = await world.checkBill(story);
      expect(prompts.filter((_, at) => items[at]?.status === "success").sort()).toEqual([...GOOD].sort());
      for (const lost of ["lost", "unreadable"])
        expect(items[prompts.indexOf(lost)]?.error?.code).toBe("RESULT_MISSING");
      expect(items.filter(isMarked)).toEqual([]);
    }, 300_000);

    it.each(ends)(
      "%s: what it made is fetched, and the rest fails",
      async (name, [plan, made]) => {
        const story = world.story(type, name);
        const status = made > 0 ? "completed" : "failed";
        const error = { code: "BATCH_IMAGE_PROVIDER_SUBMIT_FAILED", source: "provider" };
        expect(await world.ended(story)).toMatchObject({
          ...{ status, success_count: made, error: made > 0 ? null : error },
        });
        const items = await world.checkBill(story);
        if (plan.reason) expect(items.at(-1)?.error?.message).toContain(plan.reason);
        expect(story.asked("create")).toHaveLength(1);
      },
      300_000,
    );

    it("fails, and the other jobs of its batch give their images", async () => {
      const story = world.story(type, "parts");
      expect(await world.ended(story)).toMatchObject({ status: "completed" });
      await world.checkBill(story);
      const { jobs } = story.fake.book;
      expect(jobs.map(({ lines }) => lines.length).sort()).toEqual([1, 2, 2]);
      await world.checkBooks();
    }, 300_000);
  });
}

for (const type of WITHOUT_END) {
  describe(`a job at ${type} that does not end`, () => {
    const config = { jobHours: 1 };
    const stuck = { pendingMs: FOREVER, made: isEven };
    const cases: JobCase[] = [
      { name: "stuck", type, config, arrange: planned(stuck) },
      { name: "deaf", type, config, arrange: planned({ ...stuck, cancelMs: FOREVER }) },
    ];
    let world: JobWorld;
    beforeAll(async () => {
      world = await JobWorld.start(cases);
      for (const { fake } of world.all()) await vi.waitUntil(() => fake.book.jobs.length === 1, PATIENCE);
    }, 300_000);
    afterAll(() => world?.close());

    it("is cancelled when its time is over, not before; what it made counts", async () => {
      const [story, deaf] = [world.story(type, "stuck"), world.story(type, "deaf")];
      const looks = () => story.asked("poll").length + story.asked("list").length;
      const before = looks();
      await world.restart(50 * MINUTE_MS);
      await vi.waitUntil(() => looks() > before, PATIENCE);
      expect(story.asked("cancel")).toEqual([]);
      await world.restart(11 * MINUTE_MS);
      await vi.waitUntil(() => story.asked("cancel").length > 0, PATIENCE);
      // A service that starts looks at once.
      await world.restart();
      expect(await world.ended(story)).toMatchObject({ status: "completed", success_count: 1 });
      await world.checkBill(story);
      await vi.waitUntil(() => deaf.asked("cancel").length > 0, PATIENCE);
    }, 300_000);

    it("is deaf: an hour after the cancel it is given up", async () => {
      const story = world.story(type, "deaf");
      await vi.waitUntil(() => story.asked("cancel").length > 0, PATIENCE);
      await world.restart(61 * MINUTE_MS);
      expect(await world.ended(story)).toMatchObject({
        status: "completed",
        success_count: 0,
        actual_cost: 0,
      });
      await world.checkBooks();
    }, 300_000);
  });
}
