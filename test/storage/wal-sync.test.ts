import { execFileSync } from "node:child_process";
import { pbkdf2 } from "node:crypto";
import { closeSync, openSync } from "node:fs";
import { open as openFile, symlink } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { expect, it, onTestFinished } from "vitest";
import { openSqlite } from "../../src/storage/dialects/sqlite.ts";
import { migrate } from "../../src/storage/migrate.ts";
import { sqlStores } from "../../src/storage/stores.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { startNode } from "../support/processes.ts";
import { tempDir } from "../support/temp-dir.ts";

const SQLITE = join(import.meta.dirname, "../../build/storage/dialects/sqlite.js");
const CLOCK = join(import.meta.dirname, "../../build/kernel/clock.js");
/** More than the pool of threads can take at once. */
const TASKS = 16;
/** Makes all tasks together take far longer than syncs may wait. */
const ROUNDS = 60_000;

async function open(file: string) {
  const database = openSqlite(file, new InstantClock());
  onTestFinished(() => database.close());
  await migrate(database);
  return sqlStores(database);
}

/** Fills the pool of threads with work that takes a while. */
function fillPool(): Promise<unknown> {
  const tasks = Array.from(
    { length: TASKS },
    () => new Promise<void>((resolve) => pbkdf2("x", "y", ROUNDS, 64, "sha512", () => resolve())),
  );
  return Promise.all(tasks);
}

/** Keeps all threads of the pool busy until the returned function is called, or the test ends. */
async function holdPool(): Promise<() => Promise<void>> {
  const pipe = join(await tempDir(), "pipe");
  execFileSync("mkfifo", [pipe]);
  // Each waits in a thread until somebody writes to the pipe.
  const readers = Array.from({ length: TASKS }, () => openFile(pipe, "r"));
  let ending: Promise<void> | null = null;
  const end = async () => {
    const writer = openSync(pipe, "r+");
    for (const reader of await Promise.all(readers)) await reader.close();
    closeSync(writer);
  };
  const letGo = () => (ending ??= end());
  onTestFinished(letGo);
  return letGo;
}

it("[WAL-5] a transaction that only reads makes no sync", async () => {
  const stores = await open(join(await tempDir(), "x.db"));
  const letGo = await holdPool();
  // A sync would wait for ever.
  await stores.write((tx) => tx.accounts.byId("a"));
  await letGo();
});

it("[WAL-2] a database is opened through a link to its file", async () => {
  const dir = await tempDir();
  await open(join(dir, "real.db"));
  await symlink("real.db", join(dir, "link.db"));
  const stores = await open(join(dir, "link.db"));
  await stores.write((tx) => tx.accounts.insert({ id: "a", name: "a", createdAtMs: 1 }));
  expect((await stores.read.accounts.byId("a"))?.name).toBe("a");
});

it("[WAL-4] a database that is closed again closes no file that was opened since", async () => {
  const dir = await tempDir();
  const database = openSqlite(join(dir, "x.db"), new InstantClock());
  await database.close();
  await setTimeout(50);
  const files = await Promise.all(Array.from({ length: 12 }, (_, i) => openFile(join(dir, String(i)), "w")));
  await database.close();
  await setTimeout(50);
  for (const file of files) {
    await file.writeFile("x");
    await file.close();
  }
});

it("[WAL-3] a commit that had to wait long behind other work of the pool is the last that waits there", async () => {
  const stores = await open(join(await tempDir(), "x.db"));
  const first = fillPool();
  await stores.write((tx) => tx.touch());
  await first;
  const letGo = await holdPool();
  await stores.write((tx) => tx.touch());
  await letGo();
});

it("[WAL-3] options of the process do not reach that thread", async () => {
  const program = `
    import { pbkdf2 } from "node:crypto";
    import { openSqlite } from "${SQLITE}";
    import { systemClock } from "${CLOCK}";
    const database = openSqlite(process.argv[1], systemClock);
    const write = () => database.transaction(async () => 1);
    for (let times = 0; times < 2; times++) {
      for (let i = 0; i < 16; i++) pbkdf2("x", "y", ${ROUNDS}, 64, "sha512", () => {});
      await write();
    }
    database.close();
    console.log("done");
  `;
  const file = join(await tempDir(), "x.db");
  const { code, stdout, stderr } = await startNode(["--input-type=module", "-e", program, file]).exited;
  expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: "done\n", stderr: "" });
});
