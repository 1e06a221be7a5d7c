import { existsSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { expect, it, onTestFinished, vi } from "vitest";
import { openSqlite } from "../../src/storage/dialects/sqlite.ts";
import { WalCheckpoints } from "../../src/storage/dialects/wal-checkpoints.ts";
import { migrate } from "../../src/storage/migrate.ts";
import { sqlStores } from "../../src/storage/stores.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { tempDir } from "../support/temp-dir.ts";

/** Some 25 pages. */
const NAME = "n".repeat(100_000);
const COMMITS = 60;
/** In pages. */
const LONG = 1000;

it("[WAL-6] the log is written back while the event loop goes on, and is gone when the database is closed", async () => {
  const file = join(await tempDir(), "x.db");
  const database = openSqlite(file, new InstantClock());
  await migrate(database);
  const stores = sqlStores(database);
  for (let i = 0; i < COMMITS; i++) {
    await stores.write((tx) => tx.accounts.insert({ id: `a${i}`, name: NAME + i, createdAtMs: 1 }));
  }
  await vi.waitFor(() => expect(statSync(file).size).toBeGreaterThan(NAME.length * 40), 10_000);
  await stores.write((tx) => tx.accounts.insert({ id: "last", name: "last", createdAtMs: 1 }));
  await database.close();
  expect(existsSync(`${file}-wal`)).toBe(false);
  const again = openSqlite(file, new InstantClock());
  expect(await sqlStores(again).read.accounts.list()).toHaveLength(COMMITS + 1);
  await again.close();
});

it("[WAL-6] an error of the thread is told, and ends nothing else", async () => {
  const file = join(await tempDir(), "x.db");
  writeFileSync(file, "no database at all ".repeat(1000));
  const told = vi.fn();
  const checkpoints = new WalCheckpoints(file, () => LONG, told);
  for (let i = 0; i < COMMITS; i++) checkpoints.noteCommit();
  await vi.waitFor(() => expect(told).toHaveBeenCalled(), 10_000);
  expect(told.mock.calls[0]?.[0].code).toBe("SQLITE_NOTADB");
  await checkpoints.close();
});

it("[WAL-6] no thread is started for a short log", async () => {
  const started = vi.fn();
  process.on("worker", started);
  onTestFinished(() => void process.off("worker", started));
  let pages = LONG - 1;
  const checkpoints = new WalCheckpoints(join(await tempDir(), "missing.db"), () => pages, vi.fn());
  checkpoints.noteCommit();
  await new Promise(setImmediate);
  expect(started).not.toHaveBeenCalled();
  pages = LONG;
  checkpoints.noteCommit();
  await new Promise(setImmediate);
  expect(started).toHaveBeenCalledTimes(1);
  await checkpoints.close();
});

it("[WAL-6] each thousand pages are written back, and the log begins anew instead of growing", async () => {
  const file = join(await tempDir(), "x.db");
  const database = openSqlite(file, new InstantClock());
  await migrate(database);
  const stores = sqlStores(database);
  const other = new Sqlite(file);
  const pagesLeft = () => {
    const [{ log, checkpointed }] = other.pragma("wal_checkpoint(NOOP)") as [Record<string, number>];
    return Number(log) - Number(checkpointed);
  };
  for (let round = 0; round < 5; round++) {
    for (let i = 0; i < COMMITS; i++) {
      const name = `${NAME} ${round} ${i}`;
      await stores.write((tx) => tx.accounts.insert({ id: name.slice(-5), name, createdAtMs: 1 }));
    }
    await vi.waitFor(() => expect(pagesLeft()).toBeLessThan(LONG), 10_000);
  }
  expect(statSync(`${file}-wal`).size).toBeLessThan(3.5 * COMMITS * NAME.length);
  other.close();
  await database.close();
});
