import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { isInTurn } from "../../support/fuzz-runs.ts";
import { isMarked } from "../../support/upstreams/chain.ts";
import type { Behaviour, RequestKind } from "../../support/upstreams/fake-upstream.ts";
import * as hostile from "../../support/upstreams/hostile.ts";
import {
  JOB_UPSTREAMS,
  type JobCase,
  JobWorld,
  MINUTE_MS,
  PATIENCE,
} from "../../support/upstreams/job-world.ts";
import { nativeErrors } from "../../support/upstreams/native.ts";
import { openaiErrors } from "../../support/upstreams/openai-dialects.ts";

const PAGE = { status: 502, body: "<html>Bad gateway</html>", headers: { "content-type": "text/html" } };
const noJob = nativeErrors.other(404, "NOT_FOUND", "Requested entity was not found.");

/** The creation was taken, and the service gets another answer. */
const LOST: Record<string, Behaviour> = {
  "breaks the connection": hostile.resetAfter({ made: true }),
  "breaks off in the middle of the answer": hostile.resetMidway,
  "answers with half a document": hostile.halfJson,
  "answers with the page of a proxy": hostile.answersAfter(PAGE),
  "answers 500": hostile.answersAfter(nativeErrors.internal()),
};

/** Nothing was bought by these requests, so they may come again. */
const TROUBLES: [RequestKind, string, Behaviour][] = [
  ["upload", "reset before", hostile.resetBefore],
  ["upload", "reset after", hostile.resetAfter({ made: true })],
  ["upload", "page", hostile.html(502)],
  ["chunk", "reset midway", hostile.resetMidway],
  ["chunk", "500", hostile.answers(nativeErrors.internal())],
  ["poll", "reset", hostile.resetAfter({ made: true })],
  ["poll", "page", hostile.html(200)],
  ["poll", "500", hostile.answers(nativeErrors.internal())],
  ["poll", "404", hostile.answers(noJob)],
  ["list", "half", hostile.halfJson],
  ["download", "reset before", hostile.resetBefore],
  ["download", "cut at once", hostile.cutAt(0)],
  ["download", "cut later", hostile.cutAt(1500)],
  ["download", "page", hostile.html(502)],
  ["download", "whole answer of half a file", hostile.halfJson],
  ["delete", "reset", hostile.resetAfter({ made: true })],
  ["delete", "500", hostile.answers(nativeErrors.internal())],
];

const first = (count: number, behaviour: Behaviour, kind: RequestKind): JobCase["arrange"] => {
  const limited = hostile.first(count, behaviour);
  return ({ setBehaviour }) => setBehaviour(limited, kind);
};

for (const [nth, type] of JOB_UPSTREAMS.entries()) {
  const isNative = type === "native-batch";
  describe(`answers of ${type}`, () => {
    // OpenAI takes a file in one request.
    const troubles = TROUBLES.filter(([kind], at) =>
      kind === "chunk" ? isNative : isInTurn(at, nth, JOB_UPSTREAMS.length),
    );
    const limited = isNative
      ? nativeErrors.limited({ retryDelay: "1s" })
      : openaiErrors.limited({ "retry-after": "1" });
    const refusal = isNative ? nativeErrors.invalid("No.") : openaiErrors.invalid("No.", null);
    const cases: JobCase[] = [
      ...Object.entries(LOST).map(([name, behaviour]) => ({
        ...{ name, type },
        arrange: (fake: Parameters<NonNullable<JobCase["arrange"]>>[0]) => {
          fake.addForeign("another machine's", ["a beach"]);
          fake.setBehaviour(hostile.first(1, behaviour), "create");
        },
      })),
      ...troubles.map(([kind, name, behaviour]) => ({
        ...{ name: `${kind}: ${name}`, type },
        arrange: first(2, behaviour, kind),
      })),
      { name: "limited", type, arrange: first(2, hostile.answers(limited), "create") },
      {
        ...{ name: "refused", type },
        arrange: ({ setBehaviour }) => setBehaviour(hostile.answers(refusal), "create"),
      },
      {
        ...{ name: "cut without ranges", type },
        arrange: (fake) => {
          fake.settings.hasRanges = false;
          fake.setBehaviour(hostile.first(2, hostile.cutAt(1500)), "download");
        },
      },
      {
        ...{ name: "repeats the key", type },
        arrange: (fake) => {
          fake.settings.echoesKey = true;
          fake.book.plan = () => ({
            reason: "No.",
            fault: (_, at) => (at === 0 ? "error" : null),
          });
          fake.setBehaviour(hostile.first(2, hostile.echo(500)), "poll");
        },
      },
    ];
    let world: JobWorld;
    beforeAll(async () => {
      world = await JobWorld.start(cases);
      for (const story of world.all()) await world.ended(story);
      // Deletions that failed are repeated by a service that starts. They fail twice.
      await world.restart(30 * MINUTE_MS);
      await world.restart();
    }, 400_000);
    afterAll(() => world?.close());

    it.each(Object.keys(LOST))(
      "[CHAIN-17] to a creation are lost, and the job is found: it %s",
      async (name) => {
        const story = world.story(type, name);
        expect(await world.ended(story)).toMatchObject({ status: "completed", fail_count: 0 });
        expect((await world.checkBill(story)).filter(isMarked)).toEqual([]);
        expect(story.asked("create")).toHaveLength(1);
      },
      300_000,
    );

    it.each([...troubles.map(([kind, name]) => `${kind}: ${name}`), "limited", "cut without ranges"])(
      "go wrong twice, and all is bought once: %s",
      async (name) => {
        const story = world.story(type, name);
        expect(await world.ended(story)).toMatchObject({ status: "completed", fail_count: 0 });
        expect((await world.checkBill(story)).filter(isMarked)).toEqual([]);
        expect(story.fake.book.jobs).toHaveLength(1);
      },
      300_000,
    );

    it("refuse a creation: the batch fails and costs nothing", async () => {
      const story = world.story(type, "refused");
      expect(await world.ended(story)).toMatchObject({ status: "failed", actual_cost: 0 });
      await world.checkBill(story);
      expect(story.asked("create")).toHaveLength(1);
      await vi.waitUntil(() => story.fake.book.files.size === 0, PATIENCE);
    }, 300_000);

    it("repeat the key in every error, and it reaches nobody", async () => {
      const story = world.story(type, "repeats the key");
      expect(await world.ended(story)).toMatchObject({ status: "completed", fail_count: 1 });
      // The whole output of the service is searched for keys at its end.
      const items = await world.checkBill(story);
      expect(JSON.stringify(items)).not.toContain(isNative ? "AIza" : "sk-proj");
      await world.checkBooks();
    }, 300_000);
  });

  it(`a job of ${type} that no list shows is created again after ten minutes, not before, with a mark`, async () => {
    const minutes = [3, 9, 15];
    const cases = minutes.map((late): JobCase => {
      const arrange: JobCase["arrange"] = (fake) => {
        fake.book.plan = (_, at) => (at === 0 ? { listedAfterMs: late * MINUTE_MS } : {});
        fake.setBehaviour(hostile.first(1, hostile.resetAfter({ made: true })), "create");
      };
      return { name: `${late} minutes late`, type, arrange };
    });
    const world = await JobWorld.start(cases);
    try {
      const stories = minutes.map((late) => world.story(type, `${late} minutes late`));
      // With the third list, the service has read one since it knows that the response is lost.
      for (const story of stories) await vi.waitUntil(() => story.asked("list").length > 2, PATIENCE);
      for (const [at, more] of [4, 6].entries()) {
        await world.restart(more * MINUTE_MS);
        const story = stories[at];
        if (!story) throw new Error("no story");
        expect(await world.ended(story)).toMatchObject({ status: "completed", fail_count: 0 });
        expect((await world.checkBill(story)).filter(isMarked)).toEqual([]);
        expect(story.asked("create")).toHaveLength(1);
      }
      const [, , last] = stories;
      if (!last) throw new Error("no story");
      await world.restart(2 * MINUTE_MS);
      expect(await world.ended(last)).toMatchObject({ status: "completed", fail_count: 0 });
      await world.restart(30 * MINUTE_MS);
      expect((await world.checkBill(last)).filter(isMarked)).toHaveLength(last.prompts.length);
      expect(last.asked("create")).toHaveLength(2);
      await world.checkBooks();
    } finally {
      await world.close();
    }
  }, 400_000);
}

describe("a job that is found after it was created once more", () => {
  it("is cancelled when it still runs", async () => {
    const type = "native-batch";
    const arrange: JobCase["arrange"] = (fake) => {
      fake.book.plan = (_, at) =>
        at === 0 ? { runningMs: Number.POSITIVE_INFINITY, listedAfterMs: 15 * MINUTE_MS } : {};
      fake.setBehaviour(hostile.first(1, hostile.resetAfter({ made: true })), "create");
    };
    const world = await JobWorld.start([{ name: "twin", type, arrange }]);
    try {
      const story = world.story(type, "twin");
      await vi.waitUntil(() => story.asked("list").length > 2, PATIENCE);
      await world.restart(11 * MINUTE_MS);
      expect(await world.ended(story)).toMatchObject({ status: "completed", fail_count: 0 });
      await world.restart(10 * MINUTE_MS);
      await expect.poll(() => story.fake.book.running().length, { timeout: 30_000 }).toBe(0);
    } finally {
      await world.close();
    }
  }, 300_000);
});
