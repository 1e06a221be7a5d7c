import { sql } from "kysely";
import pg from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { type Clock, systemClock } from "../../src/kernel/clock.ts";
import { openPostgres } from "../../src/storage/dialects/postgres.ts";
import { type SqlSession, written } from "../../src/storage/dialects/sql-session.ts";
import { sqlStores } from "../../src/storage/stores.ts";
import { gate } from "../support/gate.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { startPgProxy } from "../support/pg-proxy.ts";
import { hasPostgres, newDatabase, openTestPostgres } from "../support/postgres.ts";

const account = (id: string, name = id) => ({ id, name, createdAtMs: 1 });

/** A connection of somebody else to the same database. */
async function beside(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

/** A test database whose connections can be cut. */
async function behindProxy(options: { stopping?: AbortSignal } = {}) {
  const url = new URL(await newDatabase());
  const proxy = await startPgProxy({ port: Number(url.port) });
  onTestFinished(() => proxy.close());
  url.port = String(proxy.port);
  const database = await openPostgres({ url: url.href, ...options }, systemClock);
  onTestFinished(() => database.close().catch(() => {}));
  return { proxy, database, stores: sqlStores(database) };
}

/** Ends every other connection to the database, as a restart of the server does. */
const CUT =
  "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";

const one = async (session: SqlSession, query: ReturnType<typeof sql<{ value: unknown }>>) =>
  (await session.first(written(session, query)))?.value;

describe.skipIf(!hasPostgres)("PostgreSQL", () => {
  it("integers come back exactly; one that JavaScript cannot hold is an error", async () => {
    const { reader } = (await openTestPostgres()).database;
    expect(await one(reader, sql`select ${Number.MAX_SAFE_INTEGER}::bigint as value`)).toBe(2 ** 53 - 1);
    expect(await one(reader, sql`select sum(n::bigint) as value from (values (1), (2)) as t(n)`)).toBe(3);
    await expect(one(reader, sql`select 9007199254740993::bigint as value`)).rejects.toThrow(
      "no safe integer",
    );
    await expect(one(reader, sql`select 1.5::numeric as value`)).rejects.toThrow("no safe integer");
  });

  it("a NUL is stored as U+FFFD, and looking for one finds nothing else", async () => {
    const { stores } = await openTestPostgres();
    await stores.write((tx) => tx.accounts.insert(account("a", "x\0y")));
    expect(await stores.read.accounts.byName("x\uFFFDy")).toMatchObject({ id: "a" });
    expect(await stores.read.accounts.byId("a\0")).toBeNull();
  });

  it("a transaction whose connection is cut before the commit runs again, and once counts", async () => {
    const { url, stores } = await openTestPostgres();
    const other = await beside(url);
    let runs = 0;
    const cutting = gate();
    await stores.write(async (tx) => {
      runs++;
      await tx.accounts.insert(account("a"));
      if (runs > 1) return;
      // Sent at once: the query of the transaction that follows reaches the server after it.
      void other.query(CUT).then(() => cutting.open(), cutting.fail);
      for (let i = 0; i < 10_000; i++) await tx.accounts.list();
    });
    await cutting.promise;
    expect(runs).toBe(2);
    expect(await stores.read.accounts.list()).toHaveLength(1);
  });

  it("a transaction that loses against others runs again after pauses that grow and differ", async () => {
    const clock = new InstantClock();
    const { stores } = await openTestPostgres(clock);
    const before = clock.sleepsMs.length;
    let runs = 0;
    await stores.write(async (tx) => {
      await tx.accounts.insert(account("a"));
      if (runs++ < 10) throw Object.assign(new Error("deadlock detected"), { code: "40P01" });
    });
    const pauses = clock.sleepsMs.slice(before);
    expect(pauses).toHaveLength(10);
    expect(new Set(pauses).size).toBeGreaterThan(5);
    expect(Math.max(...pauses)).toBeLessThanOrEqual(1000);
    expect(await stores.read.accounts.list()).toHaveLength(1);
  });

  it("idle connections that are cut harm nothing: the next reads and writes use others", async () => {
    const { url, stores } = await openTestPostgres();
    const other = await beside(url);
    for (let i = 0; i < 3; i++) {
      await Promise.all(Array.from({ length: 5 }, () => stores.read.accounts.list()));
      await other.query(CUT);
      const [, read] = await Promise.all([
        stores.write((tx) => tx.accounts.insert(account(`a${i}`))),
        stores.snapshot((now) => now.accounts.list()),
      ]);
      expect(read.length).toBeGreaterThanOrEqual(i);
    }
    expect(await stores.read.accounts.list()).toHaveLength(3);
  });

  it("connections that die without a word hold up nothing for long: reads and writes go on with others", async () => {
    const { stores, proxy } = await behindProxy();
    const ids = Array.from({ length: 5 }, (_, i) => `a${i}`);
    const insert = (id: string) => stores.write((tx) => tx.accounts.insert(account(id)));
    await Promise.all(ids.map((id) => insert(`before ${id}`)));
    proxy.silence();
    const startMs = performance.now();
    await Promise.all(ids.flatMap((id) => [insert(id), stores.read.accounts.byId(id)]));
    expect(performance.now() - startMs).toBeLessThan(30_000);
    expect(await stores.read.accounts.list()).toHaveLength(10);
  });

  it.each(["before", "answer", "late", "silent"] as const)(
    "[PG-9] a write whose commit is cut (%s) rejects, because it may have happened, and is not done again",
    async (how) => {
      const { stores, proxy } = await behindProxy();
      let runs = 0;
      proxy.cut(how);
      const writing = stores.write(async (tx) => {
        runs++;
        await tx.accounts.insert(account("a"));
      });
      await expect(writing).rejects.toMatchObject({ name: "StorageUnavailable", reason: "unknown-commit" });
      const accounts = () => stores.read.accounts.list();
      await expect.poll(accounts).toHaveLength(how === "before" ? 0 : 1);
      await stores.write((tx) => tx.accounts.insert(account("b")));
      expect([runs, (await accounts()).at(-1)?.id]).toEqual([1, "b"]);
    },
  );

  it("has no more connections than it may, and work waits for one", async () => {
    const url = await newDatabase();
    const database = await openPostgres({ url, connections: 2 }, systemClock);
    onTestFinished(() => database.close());
    const { write, read } = sqlStores(database);
    const own = sql<{ count: number }>`select count(*)::int as count from pg_stat_activity
      where datname = current_database() and application_name = 'imgbatch'`;
    const all = Array.from({ length: 12 }, (_, i) =>
      i % 2 === 0 ? write((tx) => tx.touch()) : read.workers.list(),
    );
    await Promise.all(all);
    expect(await database.reader.first(written(database.reader, own))).toEqual({ count: 2 });
  });

  it("keeps no statement in a connection, where a pooler would not find it again", async () => {
    const { database, stores } = await openTestPostgres();
    await stores.write((tx) => tx.accounts.insert(account("a")));
    await stores.write((tx) => tx.lock("account", "a"));
    expect(await stores.snapshot((now) => now.accounts.byId("a"))).toMatchObject({ id: "a" });
    const kept = sql<{ value: number }>`select count(*) as value from pg_prepared_statements`;
    expect(await one(database.reader, kept)).toBe(0);
  });

  it("of two transactions that wait for each other, both happen in the end", async () => {
    const { stores } = await openTestPostgres();
    await stores.write(async (tx) => {
      for (const id of ["a", "b"]) await tx.accounts.insert(account(id));
    });
    const add = async (first: string, second: string) =>
      stores.write(async (tx) => {
        for (const id of [first, second]) {
          await tx.accounts.change(id, { balanceMicroUsd: 1, heldMicroUsd: 0 });
          // Time for the other one to take its first row.
          for (let i = 0; i < 20; i++) await tx.accounts.list();
        }
      });
    await Promise.all(Array.from({ length: 6 }, (_, i) => (i % 2 === 0 ? add("a", "b") : add("b", "a"))));
    const balances = (await stores.read.accounts.list()).map(({ balanceMicroUsd }) => balanceMicroUsd);
    expect(balances).toEqual([6, 6]);
  });

  it("of two transactions that insert the same row, the second sees the first", async () => {
    const { stores } = await openTestPostgres();
    const ensure = () =>
      stores.write(async (tx) => {
        if (await tx.accounts.byName("a")) return "found";
        await tx.accounts.insert(account(Math.random().toString(), "a"));
        return "made";
      });
    const ends = await Promise.all(Array.from({ length: 8 }, ensure));
    expect(ends.filter((end) => end === "made")).toHaveLength(1);
    const again = stores.write((tx) => tx.accounts.insert(account("other", "a")));
    await expect(again).rejects.toThrow("duplicate key");
  });

  it("a query that fails undoes its transaction, even when the error is caught inside", async () => {
    const { stores } = await openTestPostgres();
    const work = stores.write(async (tx) => {
      await tx.accounts.insert(account("a"));
      await tx.accounts.change("a", { balanceMicroUsd: 0, heldMicroUsd: -1 }).catch(() => {});
      return "done";
    });
    await expect(work).rejects.toThrow("violates check constraint");
    expect(await stores.read.accounts.list()).toEqual([]);
  });

  it("a server that cannot be reached, or refuses, is named with its reason", async () => {
    const { url } = await openTestPostgres();
    const nobody = openPostgres({ url: "postgres://localhost:1/x" }, new InstantClock());
    await expect(nobody).rejects.toMatchObject({ code: "STORAGE_FAILED" });
    await expect(nobody).rejects.toThrow("ECONNREFUSED");
    const unknown = new URL(url);
    unknown.pathname = "/nowhere";
    const refused = openPostgres({ url: unknown.href }, systemClock);
    await expect(refused).rejects.toThrow('database "nowhere" does not exist');
  });

  it("while the database takes nobody, a write is refused, and works again afterwards", async () => {
    const { url, stores } = await openTestPostgres();
    const other = await beside(url.replace(/\/[^/]*$/, "/postgres"));
    const name = new URL(url).pathname.slice(1);
    await other.query(`alter database ${name} allow_connections false`);
    await other.query("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", [name]);
    const refused = await stores.write((tx) => tx.accounts.insert(account("a"))).catch((error) => error);
    expect(refused).toMatchObject({ name: "StorageUnavailable", reason: "broken" });
    await other.query(`alter database ${name} allow_connections true`);
    await stores.write((tx) => tx.accounts.insert(account("b")));
    expect((await stores.read.accounts.list()).map(({ id }) => id)).toEqual(["b"]);
  });

  it.each(["gone without a word", "away"])(
    "at the end of a service, nothing waits long for a server that is %s",
    async (how) => {
      const stopping = new AbortController();
      const { proxy, stores } = await behindProxy({ stopping: stopping.signal });
      if (how === "away") {
        proxy.isRefusing = true;
        proxy.cutAll();
      } else proxy.silence();
      const ended = stores.read.accounts.list().catch((error) => error);
      const startMs = performance.now();
      stopping.abort();
      expect(await ended).toMatchObject({ reason: "broken" });
      // Else each would try for ten seconds.
      expect(performance.now() - startMs).toBeLessThan(9000);
    },
  );

  it("the time is that of the database, whatever the own clock shows and however it jumps", async () => {
    const { url } = await openTestPostgres();
    let astrayMs = 3_600_000;
    const own: Clock = { ...systemClock, nowMs: () => Date.now() + astrayMs };
    const wrong = await openPostgres({ url }, own);
    onTestFinished(() => wrong.close());
    const off = () => Math.abs(wrong.clock.nowMs() - Date.now());
    expect(off()).toBeLessThan(10_000);
    expect(wrong.warnings).toMatchObject([
      { message: "the clock of this machine is 60 min ahead of that of the database, which counts" },
    ]);
    astrayMs = -86_400_000;
    await wrong.transaction(async () => {});
    expect(off()).toBeLessThan(10_000);
    const right = await openPostgres({ url }, { ...systemClock, nowMs: () => Date.now() - 20_000 });
    onTestFinished(() => right.close());
    expect(right.warnings).toEqual([]);
  });
});
