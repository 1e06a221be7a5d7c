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
  await vi.waitFor(() => expect(statSync(file).size).toBeGreaterThan(NAME.length * 40), 30_000);
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
  await vi.waitFor(() => expect(told).toHaveBeenCalled(), 30_000);
  expect(told.mock.calls[0]?.[0].code).toBe("SQLITE_NOTADB");
  await checkpoints.close();
});

it("[WAL-6] a look at the log that fails is told, and does not make the commit fail", () => {
  const told = vi.fn();
  const failure = new Sqlite.SqliteError("disk I/O error", "SQLITE_IOERR");
  const pagesLeft = () => {
    throw failure;
  };
  const checkpoints = new WalCheckpoints("missing.db", pagesLeft, told);
  checkpoints.noteCommit();
  checkpoints.noteCommit();
  expect(told.mock.calls).toEqual([[failure], [failure]]);
});

it("[WAL-6] a commit during a checkpoint is looked at after it", async () => {
  const file = join(await tempDir(), "x.db");
  new Sqlite(file).exec("PRAGMA journal_mode = WAL; CREATE TABLE t (x)").close();
  const pagesLeft = vi.fn(() => 0).mockReturnValueOnce(LONG);
  const checkpoints = new WalCheckpoints(file, pagesLeft, vi.fn());
  checkpoints.noteCommit();
  checkpoints.noteCommit();
  expect(pagesLeft).toHaveBeenCalledTimes(1);
  await expect.poll(() => pagesLeft.mock.calls.length).toBe(2);
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

it("[WAL-6] a log of a thousand pages is written back whole, and begins anew instead of growing", async () => {
  const file = join(await tempDir(), "x.db");
  const database = openSqlite(file, new InstantClock());
  await migrate(database);
  const stores = sqlStores(database);
  const other = new Sqlite(file);
  const pagesLeft = () => {
    const [{ log, checkpointed }] = other.pragma("wal_checkpoint(NOOP)") as [Record<string, number>];
    return Number(log) - Number(checkpointed);
  };
  const sizes: number[] = [];
  for (let round = 0; round < 3; round++) {
    // One commit: nothing is added to the log while it is written back.
    await stores.write(async (tx) => {
      for (let i = 0; i < COMMITS / 2; i++) {
        const name = `${NAME} ${round} ${i}`;
        await tx.accounts.insert({ id: name.slice(-5), name, createdAtMs: 1 });
      }
    });
    await expect.poll(pagesLeft).toBe(0);
    sizes.push(statSync(`${file}-wal`).size);
  }
  const [first = 0, , last = 0] = sizes;
  expect(first).toBeGreaterThan(LONG * 4096);
  expect(last).toBeLessThan(1.5 * first);
  other.close();
  await database.close();
});
