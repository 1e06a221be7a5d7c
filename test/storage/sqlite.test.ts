import { statSync } from "node:fs";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { describe, expect, it, onTestFinished } from "vitest";
import { type Clock, systemClock } from "../../src/kernel/clock.ts";
import { openSqlite } from "../../src/storage/dialects/sqlite.ts";
import { migrate } from "../../src/storage/foundation.ts";
import { sqlStores } from "../../src/storage/stores.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { items, MODEL, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

/** The pause of a write before it tries again for a locked database. */
const RETRY_MS = 20;

/** Another connection that holds the write lock until it is told to let go, as another process would. */
function lockOut(file: string): () => void {
  const other = new Sqlite(file);
  onTestFinished(() => void other.close());
  other.exec("BEGIN IMMEDIATE");
  return () => void other.exec("COMMIT");
}

describe("a database that another process has locked", () => {
  it("the wait for a lock blocks no other request, and the work goes on afterwards", async () => {
    let retries = 0;
    const sleep: Clock["sleep"] = (ms, signal) => {
      if (ms === RETRY_MS) retries++;
      return systemClock.sleep(ms, signal);
    };
    const service = await startTestService({ clock: { ...systemClock, sleep } });
    const letGo = lockOut(join(service.data, "imgbatch.db"));
    let isCreated = false;
    const creates = Array.from({ length: 5 }, (_, i) =>
      service.submit({ model: MODEL, items: items(1) }, { "idempotency-key": `k${i}` }).then((batch) => {
        isCreated = true;
        return batch;
      }),
    );
    // Were a write to wait inside the database, nothing else would be done here in that time.
    while (retries < 10) {
      const list = await service.ask("");
      expect(list.status).toBe(200);
      await list.arrayBuffer();
    }
    expect(isCreated).toBe(false);
    letGo();
    for (const { id } of await Promise.all(creates)) {
      expect(await service.until(id)).toMatchObject({ status: "completed" });
    }
  });

  it("the wait for a lock sleeps outside the database; a lock that lasts too long is a temporary error with its own message", async () => {
    const file = join(await tempDir(), "x.db");
    const clock = new InstantClock();
    const database = openSqlite(file, clock);
    onTestFinished(() => database.close());
    const letGo = lockOut(file);
    await expect(database.transaction(async () => 1)).rejects.toMatchObject({
      reason: "busy",
      message: expect.stringContaining("locked"),
    });
    expect(clock.sleepsMs.reduce((sum, ms) => sum + ms, 0)).toBe(10_000);
    letGo();
    expect(await database.transaction(async () => 1)).toBe(1);
  });
});

describe("the write-ahead log", () => {
  it("a log that grew under a long reader shrinks with later writes", async () => {
    const file = join(await tempDir(), "x.db");
    const database = openSqlite(file, new InstantClock());
    onTestFinished(() => database.close());
    await migrate(database);
    const stores = sqlStores(database);
    const reader = new Sqlite(file);
    onTestFinished(() => void reader.close());
    reader.exec("BEGIN; SELECT count(*) FROM batches");
    const name = "n".repeat(2_000_000);
    const walBytes = () => statSync(`${file}-wal`).size;
    for (let i = 0; i < 20; i++) {
      await stores.write((tx) => tx.accounts.insert({ id: `a${i}`, name: name + i, createdAtMs: 1 }));
    }
    expect(walBytes()).toBeGreaterThan(40_000_000);
    reader.exec("COMMIT");
    // A checkpoint of the thread may be at work: then one of the next writes shrinks the log.
    const bytesLater = async () => {
      await stores.write((tx) => tx.touch());
      return walBytes();
    };
    await expect.poll(bytesLater).toBeLessThanOrEqual(16 * 1024 * 1024);
  });

  it("[OPS-7] a touch is a real write that changes nothing", async () => {
    const file = join(await tempDir(), "x.db");
    const database = openSqlite(file, new InstantClock());
    onTestFinished(() => database.close());
    await migrate(database);
    const stores = sqlStores(database);
    const walBytes = () => statSync(`${file}-wal`).size;
    const before = walBytes();
    await stores.write(async () => undefined);
    expect(walBytes()).toBe(before);
    await stores.write((tx) => tx.touch());
    expect(walBytes()).toBeGreaterThan(before);
    await migrate(database);
  });
});
