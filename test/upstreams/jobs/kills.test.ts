import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
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

for (const type of JOB_UPSTREAMS) {
  describe(`a service that is killed while it has a job at ${type}`, () => {
    // OpenAI takes a file in one request.
    const moments = Object.entries(MOMENTS).filter(
      ([, [kind]]) => kind !== "chunk" || type === "native-batch",
    );
    const cases: JobCase[] = [
      ...moments.map(([name, [kind, behaviour]]) => ({
        ...{ name, type },
        arrange: ({ setBehaviour }: Parameters<NonNullable<JobCase["arrange"]>>[0]) =>
          setBehaviour(behaviour, kind),
      })),
      { name: NEVER, type, arrange: (fake) => fake.setBehaviour(hangs(false), "create") },
      {
        ...{ name: RUNNING, type, config: { jobImages: 3 } },
        arrange: ({ book }) => {
          book.plan = () => ({ pendingMs: FOREVER });
        },
      },
    ];
    let world: JobWorld;
    beforeAll(async () => {
      world = await JobWorld.start(cases, { isProcess: true });
      for (const [name, [kind]] of moments) await world.story(type, name).came(kind);
      await world.story(type, NEVER).came("create");
      await vi.waitUntil(() => world.story(type, RUNNING).fake.book.jobs.length === 2, PATIENCE);
      await world.chain.end("SIGKILL");
      for (const [name, [kind]] of moments) world.story(type, name).fake.setBehaviour(null, kind);
      world.story(type, NEVER).fake.setBehaviour(null, "create");
      for (const job of world.story(type, RUNNING).fake.book.jobs) job.plan = {};
      await world.restart();
    }, 300_000);
    afterAll(() => world?.close());

    it.each([...moments.map(([name]) => name), RUNNING])(
      "[CHAIN-17] pays each prompt once, killed %s",
      async (name) => {
        const story = world.story(type, name);
        expect(await world.ended(story)).toMatchObject({ status: "completed", fail_count: 0 });
        expect((await world.checkBill(story)).filter(isMarked)).toEqual([]);
        expect(story.fake.book.payments()).toHaveLength(story.prompts.length);
        expect(story.fake.book.jobs).toHaveLength(name === RUNNING ? 2 : 1);
      },
      300_000,
    );

    it("[CHAIN-18] creates once more, with a mark, what no list shows for ten minutes", async () => {
      const story = world.story(type, NEVER);
      // With the third list, the service has read one since it knows that the response is lost.
      await vi.waitUntil(() => story.asked("list").length > 2, PATIENCE);
      expect(story.fake.book.jobs).toEqual([]);
      await world.restart(11 * MINUTE_MS);
      expect(await world.ended(story)).toMatchObject({ status: "completed", fail_count: 0 });
      expect((await world.checkBill(story)).filter(isMarked)).toHaveLength(story.prompts.length);
      expect(story.fake.book.payments()).toHaveLength(story.prompts.length);
      await world.checkBooks();
    }, 300_000);
  });

  it(`[CHAIN-17] a kill after every few requests to ${type} costs nothing`, async () => {
    const prompts = Array.from({ length: 10 }, (_, at) => `many kills, picture ${at + 1}`);
    const many = { name: "kills", type, config: { jobImages: 3 }, prompts };
    const world = await JobWorld.start([many], { isProcess: true });
    try {
      const story = world.story(type, "kills");
      const { requests } = story.fake;
      for (const more of [1, 3, 2, 4, 5]) {
        const before = requests.length;
        const hasEnded = async () => (await world.chain.batch(story.id)).success_count === prompts.length;
        await expect
          .poll(async () => requests.length >= before + more || (await hasEnded()), PATIENCE)
          .toBe(true);
        await world.restart(4 * MINUTE_MS);
      }
      await world.restart(11 * MINUTE_MS);
      expect(await world.ended(story)).toMatchObject({ status: "completed", fail_count: 0 });
      await world.checkBill(story);
      await world.checkBooks();
    } finally {
      await world.close();
    }
  }, 300_000);
}
