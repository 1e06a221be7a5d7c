import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { isInTurn } from "../../support/fuzz-runs.ts";
import { isMarked } from "../../support/upstreams/chain.ts";
import type { Behaviour, RequestKind } from "../../support/upstreams/fake-upstream.ts";
import * as hostile from "../../support/upstreams/hostile.ts";
import {
  FOREVER,
  JOB_UPSTREAMS,
  type JobCase,
  JobWorld,
  MINUTE_MS,
  PATIENCE,
} from "../../support/upstreams/job-world.ts";

const isSoak = Boolean(process.env.IMGBATCH_SOAK);
const BRIEFLY = { timeout: 4000, interval: 10 };

const hangs = (made: boolean) => hostile.late(10 * MINUTE_MS, { made });

/** When the service is killed. After each, the next look at the upstream shows how things stand. */
const MOMENTS: Record<string, [RequestKind, Behaviour]> = {
  "before its upload is taken": ["upload", hangs(false)],
  "before the response to its upload": ["upload", hangs(true)],
  "before its bytes are taken": ["chunk", hangs(false)],
  "before the response to its bytes": ["chunk", hangs(true)],
  "before the response to the creation": ["create", hangs(true)],
  "before the results come": ["download", hangs(false)],
  "in the middle of the results": ["download", hostile.cutAt(undefined, { hangs: true })],
  "before its input is deleted": ["delete", hangs(false)],
  "before the response to the deletion": ["delete", hangs(true)],
};
const NEVER = "before the creation is taken";
const RUNNING = "while its jobs run";
const CANCELLED = "while the upstream does not hear of a cancel";

// OpenAI takes a file in one request.
const moments = Object.entries(MOMENTS).flatMap(([name, [kind, behaviour]], at) =>
  JOB_UPSTREAMS.filter((type, nth) =>
    kind === "chunk" ? type === "native-batch" : kind === "create" || isInTurn(at, nth, JOB_UPSTREAMS.length),
  ).map((type) => ({
    ...{ type, name, kind, behaviour },
  })),
);

describe("a service that is killed while it has jobs", () => {
  const cases: JobCase[] = [
    ...moments.map(({ type, name, kind, behaviour }) => ({
      ...{ name, type },
      arrange: ({ setBehaviour }: Parameters<NonNullable<JobCase["arrange"]>>[0]) =>
        setBehaviour(behaviour, kind),
    })),
    ...JOB_UPSTREAMS.flatMap((type): JobCase[] => [
      { name: NEVER, type, arrange: (fake) => fake.setBehaviour(hangs(false), "create") },
      {
        ...{ name: RUNNING, type, config: { jobImages: 1 } },
        arrange: ({ book }) => {
          book.plan = () => ({ pendingMs: FOREVER });
        },
      },
      {
        ...{ name: CANCELLED, type },
        arrange: ({ book, setBehaviour }) => {
          book.plan = () => ({ pendingMs: FOREVER, made: (_, at) => at % 2 === 0 });
          setBehaviour(({ response }) => void response.socket?.resetAndDestroy(), "cancel");
        },
      },
    ]),
  ];
  let world: JobWorld;
  beforeAll(async () => {
    world = await JobWorld.start(cases, { isProcess: true });
    for (const { type, name, kind } of moments) await world.story(type, name).came(kind);
    for (const type of JOB_UPSTREAMS) {
      await world.story(type, NEVER).came("create");
      const cancelled = world.story(type, CANCELLED);
      await vi.waitUntil(() => world.story(type, RUNNING).fake.book.jobs.length === 2, PATIENCE);
      await vi.waitUntil(() => cancelled.fake.book.jobs.length === 1, PATIENCE);
      const answer = await world.chain.ask(`/v1/images/batches/${cancelled.id}/cancel`, { method: "POST" });
      expect(await answer.text()).toContain("BATCH_IMAGE_CANCEL_FAILED");
    }
    await world.chain.end("SIGKILL");
    for (const { type, name, kind } of moments) world.story(type, name).fake.setBehaviour(null, kind);
    for (const type of JOB_UPSTREAMS) {
      world.story(type, NEVER).fake.setBehaviour(null, "create");
      world.story(type, CANCELLED).fake.setBehaviour(null, "cancel");
      for (const job of world.story(type, RUNNING).fake.book.jobs) job.plan = {};
    }
    await world.restart();
  }, 300_000);
  afterAll(() => world?.close());

  const survived = [...moments, ...JOB_UPSTREAMS.map((type) => ({ type, name: RUNNING }))];
  it.each(survived)(
    "[CHAIN-17] pays each prompt once, killed $name, at $type",
    async ({ type, name }) => {
      const story = world.story(type, name);
      expect(await world.ended(story)).toMatchObject({ status: "completed", fail_count: 0 });
      expect((await world.checkBill(story)).filter(isMarked)).toEqual([]);
      expect(story.fake.book.payments()).toHaveLength(story.prompts.length);
      expect(story.fake.book.jobs).toHaveLength(name === RUNNING ? 2 : 1);
    },
    300_000,
  );

  it.each(JOB_UPSTREAMS)(
    "tells %s of a cancel by the owner until it listens, also after the kill",
    async (type) => {
      const story = world.story(type, CANCELLED);
      await expect.poll(() => story.fake.book.running(), PATIENCE).toEqual([]);
      expect(await world.ended(story)).toMatchObject({ status: "cancelled" });
    },
    300_000,
  );

  it("creates once more, with a mark, what no list shows for ten minutes", async () => {
    const stories = JOB_UPSTREAMS.map((type) => world.story(type, NEVER));
    for (const story of stories) {
      // With the third list, the service has read one since it knows that the response is lost.
      await vi.waitUntil(() => story.asked("list").length > 2, PATIENCE);
      expect(story.fake.book.jobs).toEqual([]);
    }
    await world.restart(11 * MINUTE_MS);
    for (const story of stories) {
      expect(await world.ended(story)).toMatchObject({ status: "completed", fail_count: 0 });
      expect((await world.checkBill(story)).filter(isMarked)).toHaveLength(story.prompts.length);
      expect(story.fake.book.payments()).toHaveLength(story.prompts.length);
    }
    await world.checkBooks();
  }, 300_000);
});

it.each(isSoak ? JOB_UPSTREAMS : JOB_UPSTREAMS.slice(0, 1))(
  "[CHAIN-17] a kill after every few requests to %s costs nothing but what twice lost creations are promised",
  async (type) => {
    const prompts = Array.from({ length: isSoak ? 10 : 6 }, (_, at) => `many kills, picture ${at + 1}`);
    const many = { name: "kills", type, config: { jobImages: 3 }, prompts };
    const world = await JobWorld.start([many], { isProcess: true });
    try {
      const story = world.story(type, "kills");
      const { requests } = story.fake;
      const hasEnded = async () => (await world.chain.batch(story.id)).pending_count === 0;
      // At a job that is minutes old a service looks once in many seconds, but at once when it starts.
      let seen = 0;
      const awaitSome = (areThere: () => boolean) =>
        vi
          .waitUntil(async () => areThere() || (await hasEnded()), BRIEFLY)
          .then(() => seen++)
          .catch(() => {});
      for (const more of isSoak ? [1, 3, 2, 4, 5] : [2, 4]) {
        const before = requests.length;
        await awaitSome(() => requests.length >= before + more);
        await world.restart(4 * MINUTE_MS);
      }
      // Each of these kills may be the one that loses a creation, which is repeated ten minutes later.
      for (let times = 0; times < 6 && !(await hasEnded()); times++) {
        const lists = story.asked("list").length;
        await world.restart(11 * MINUTE_MS);
        await awaitSome(() => story.asked("list").length > lists + 2);
      }
      expect(await world.ended(story)).toMatchObject({ status: "completed" });
      expect(seen).toBeGreaterThan(0);
      // Images whose creation was lost twice are not asked for a third time, and say so.
      const items = await world.checkBill(story);
      expect(items.filter((item) => item.status !== "success" && !isMarked(item))).toEqual([]);
      await world.checkBooks();
      // A program that ends in peace keeps its compiled code, which spares the next runs of these tests much.
      expect(await world.chain.end("SIGTERM")).toBe(0);
    } finally {
      await world.close();
    }
  },
  300_000,
);
