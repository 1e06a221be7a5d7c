import { describe, expect, it } from "vitest";
import { Feed } from "../../../src/domain/feed.ts";
import { EventHub } from "../../../src/server/console/event-hub.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { openBatchRecord, openStores } from "../../support/stores.ts";

type EventReader = Parameters<EventHub["open"]>[0];

class FakeReader implements EventReader {
  readonly caller: EventReader["caller"];
  readonly texts: string[] = [];
  isEnded = false;
  isActive = true;

  constructor(key: EventReader["caller"]["key"]) {
    this.caller = { key, scope: { keys: "own", isOwner: false, mayPay: false } };
  }

  write(text: string): void {
    this.texts.push(text);
  }

  end(): void {
    this.isEnded = true;
  }

  async isAllowed(): Promise<boolean> {
    return this.isActive;
  }

  /** The news since the last call. */
  take(): string[] {
    return this.texts.splice(0).map((text) => text.replaceAll("\n", " ").trim());
  }
}

async function opened() {
  const stores = await openStores();
  const clock = new FakeClock();
  const feed = new Feed();
  const hub = new EventHub({ feed, stores, clock });
  const batch = await openBatchRecord(stores);
  const other = await openBatchRecord(stores);
  const reader = new FakeReader({ id: batch.apiKeyId, accountId: batch.accountId });
  const close = hub.open(reader);
  /** Lets this many seconds pass, and waits until the hub sleeps again. */
  const pass = async (seconds = 1) => {
    for (let i = 0; i < seconds; i++) {
      await expect.poll(() => clock.sleeperCount, { interval: 1 }).toBe(1);
      clock.advance(1000);
      await new Promise(setImmediate);
    }
    await expect.poll(() => clock.sleeperCount, { interval: 1 }).toBe(1);
  };
  await pass();
  return { stores, clock, feed, hub, batch, other, reader, close, pass };
}

describe("the events of a key", () => {
  it("[EVENTS-1] are ids alone, once a second and batch, and of no other key", async () => {
    const { feed, batch, other, reader, pass } = await opened();
    expect(reader.take()).toEqual(["event: ready data: {}"]);
    feed.publish({ type: "batch", batchId: batch.id, status: "running" });
    feed.publish({ type: "batch", batchId: other.id, status: "running" });
    feed.publish({ type: "batch", batchId: "imgbatch_unknown", status: "running" });
    for (const customId of ["a", "b", "a"]) {
      feed.publish({ type: "item", batchId: batch.id, customId, status: "success" });
      feed.publish({ type: "item", batchId: other.id, customId, status: "success" });
    }
    expect(reader.take()).toEqual([]);
    await pass();
    expect(reader.take()).toEqual([`event: batch data: {"id":"${batch.id}","items":["a","b"]}`]);
    feed.publish({ type: "batch-gone", batchId: batch.id });
    await pass();
    expect(reader.take()).toEqual([`event: batch_deleted data: {"id":"${batch.id}"}`]);
    await pass();
    expect(reader.take()).toEqual([]);
  });

  it("[EVENTS-1] tell of very many items that there are many, and cannot be forged by a name", async () => {
    const { feed, batch, reader, pass } = await opened();
    reader.take();
    const customId = '"}\n\nevent: account\ndata: {}\r\n\u2028';
    feed.publish({ type: "item", batchId: batch.id, customId, status: "failed" });
    await pass();
    expect(reader.texts[0]?.match(/\n/g)).toHaveLength(3);
    expect(JSON.parse(reader.texts[0]?.slice("event: batch\ndata: ".length) ?? "").items).toEqual([customId]);
    reader.take();
    for (let i = 0; i < 102; i++)
      feed.publish({ type: "item", batchId: batch.id, customId: `${i}`, status: "success" });
    await pass();
    expect(reader.take()).toEqual([`event: batch data: {"id":"${batch.id}","items":null}`]);
  });

  it("end with the key and with the service, and show signs of life until then", async () => {
    const { hub, reader, pass } = await opened();
    reader.take();
    await pass(15);
    expect(reader.take()).toEqual([": still here"]);
    const second = new FakeReader(reader.caller.key);
    hub.open(second);
    reader.isActive = false;
    await pass(15);
    expect([reader.isEnded, second.isEnded]).toEqual([true, false]);
    hub.close();
    expect(second.isEnded).toBe(true);
    const late = new FakeReader(reader.caller.key);
    hub.open(late);
    expect(late.isEnded).toBe(true);
  });

  it("are limited to 16 streams of a key, and nothing runs when nobody reads", async () => {
    const { hub, clock, reader, close } = await opened();
    const more = Array.from({ length: 15 }, () => hub.open(new FakeReader(reader.caller.key)));
    expect(() => hub.open(new FakeReader(reader.caller.key))).toThrow("16 are allowed");
    hub.open(new FakeReader({ ...reader.caller.key, id: "other" }))();
    more[0]?.();
    more[0] = hub.open(new FakeReader(reader.caller.key));
    for (const end of [close, ...more]) end();
    expect(clock.sleeperCount).toBe(0);
  });
});
