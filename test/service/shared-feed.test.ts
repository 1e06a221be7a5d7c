import { expect, it, onTestFinished } from "vitest";
import { Feed, type ServiceEvent } from "../../src/domain/feed.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { SharedFeed } from "../../src/service/workers-part.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { openStores } from "../support/stores.ts";

async function twoFeeds() {
  const deps = { stores: await openStores(), clock: new FakeClock(), log: silentLog, ids: randomIds };
  const listeners: ((text: string) => void)[] = [];
  let sent = 0;
  // Everybody gets a notice, its sender too. PostgreSQL refuses longer ones.
  const send = (text: string) => {
    if (Buffer.byteLength(text) >= 8000) return;
    sent++;
    for (const hear of listeners) hear(text);
  };
  const sides = ["one", "two"].map(() => {
    const feed = new Feed();
    const events: ServiceEvent[] = [];
    feed.subscribe((event) => events.push(event));
    const side = { feed, events, calls: 0, resumed: [] as string[] };
    const listen = (hear: (text: string) => void) => {
      listeners.push(hear);
      return { isListening: true, send, close: async () => {} };
    };
    const shared = new SharedFeed({ ...deps, feed }, listen, {
      pollWork: async () => {
        side.calls++;
      },
      resumeProvider: (name) => side.resumed.push(name),
    });
    onTestFinished(() => shared.close());
    return Object.assign(side, { shared });
  });
  return { sides, send, sent: () => sent };
}

it("the changes of one process are gathered, told to the others once, and never told back", async () => {
  const { sides, sent } = await twoFeeds();
  const [one, two] = sides;
  const item = { type: "item", batchId: "b", customId: "i" } as const;
  one?.feed.publish({ ...item, status: "success" });
  one?.feed.publish({ ...item, customId: "j", status: "success" });
  one?.feed.publish({ ...item, customId: "k", status: "failed" });
  one?.feed.publish({ type: "batch-gone", batchId: "c" });
  await expect
    .poll(() => two?.events)
    .toEqual([
      { type: "elsewhere", batchId: "b", images: 2, failed: ["k"] },
      { type: "batch-gone", batchId: "c" },
    ]);
  two?.feed.publish({ type: "batch", batchId: "d", status: "queued" });
  await expect.poll(() => one?.events.at(-1)).toMatchObject({ type: "elsewhere", batchId: "d" });
  expect([one?.events.length, two?.events.length, sent()]).toEqual([5, 3, 2]);
});

it("no change is too long for a notice: many batches with long ids take several", async () => {
  const [one, two] = (await twoFeeds()).sides;
  const batchIds = Array.from({ length: 40 }, (_, i) => `batch-${i}`);
  const failed = ["a", "b", "c"].map((letter) => letter + "\u{1F600}".repeat(63));
  for (const batchId of batchIds)
    for (const customId of failed) one?.feed.publish({ type: "item", batchId, customId, status: "failed" });
  await expect
    .poll(() => two?.events)
    .toEqual(batchIds.map((batchId) => ({ type: "elsewhere", batchId, images: 0, failed })));
});

it("a call reaches the others alone, and what is no notice is left alone", async () => {
  const { sides, send } = await twoFeeds();
  const [one, two] = sides;
  one?.shared.notifyWorkers();
  for (const text of ["", "{", "[]", "null", '{"from":"x","batches":[1,{"id":2}]}']) send(text);
  expect([one?.calls, two?.calls]).toEqual([0, 1]);
  expect(two?.events).toEqual([]);
});

it("[HEALTH-8] a provider that one process was told to ask again is asked again by the others", async () => {
  const { sides } = await twoFeeds();
  const [one, two] = sides;
  one?.shared.notifyResume("vendor");
  await expect.poll(() => two?.resumed).toEqual(["vendor"]);
  expect(one?.resumed).toEqual([]);
});
