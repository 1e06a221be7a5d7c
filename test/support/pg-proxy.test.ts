import pg from "pg";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { LATE_MS, type PgProxy, startPgProxy } from "./pg-proxy.ts";
import { type PostgresServer, postgresBin, startPostgresServer } from "./postgres-server.ts";

const hasPostgres = postgresBin() !== null;
if (!hasPostgres) process.stderr.write("SKIPPED: tests of the PostgreSQL proxy need PostgreSQL\n");

describe.skipIf(!hasPostgres)("the proxy in front of PostgreSQL", () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgresServer({ fsync: true });
    await server.sql("create table t (i int)");
  });
  afterAll(() => server.stop());

  async function behindProxy() {
    await server.sql("truncate t");
    const proxy = await startPgProxy(server);
    onTestFinished(() => proxy.close());
    return proxy;
  }

  async function client({ port }: Pick<PgProxy, "port">) {
    const connected = new pg.Client({ connectionString: server.url().replace(/:\d+\//, `:${port}/`) });
    connected.on("error", () => {});
    onTestFinished(() => connected.end().catch(() => {}));
    await connected.connect();
    return connected;
  }

  /** One row in a transaction of its own, with parameters and without. Resolves with whether the client saw it stored. */
  async function insert(proxy: PgProxy, i: number, commit: string | pg.QueryConfig = "commit") {
    const connected = await client(proxy);
    await connected.query("begin");
    await connected.query("insert into t values ($1)", [i]);
    return connected.query(commit as string).then(
      () => true,
      () => false,
    );
  }
  const rows = () => server.sql("select coalesce(string_agg(i::text, ' ' order by i), '') from t");

  it("[FAKE-7] passes everything, and cuts a COMMIT before it, behind it or in the middle", async () => {
    const proxy = await behindProxy();
    const prepared = { name: "c", text: "COMMIT", values: [] };
    expect(await insert(proxy, 1)).toBe(true);
    for (const commit of ["commit", prepared]) {
      proxy.cut("before");
      expect(await insert(proxy, 2, commit)).toBe(false);
    }
    expect(await rows()).toBe("1");
    proxy.cut("answer", { times: 2 });
    expect(await insert(proxy, 3)).toBe(false);
    expect(await insert(proxy, 4, prepared)).toBe(false);
    expect(await rows()).toBe("1 3 4");
    proxy.cut("late");
    const startedMs = performance.now();
    expect(await insert(proxy, 5)).toBe(false);
    const stored = await rows();
    // A look that comes late itself proves nothing.
    if (performance.now() - startedMs < LATE_MS) expect(stored).toBe("1 3 4");
    await expect.poll(rows).toBe("1 3 4 5");
    expect(await insert(proxy, 6)).toBe(true);
    expect(proxy.cuts).toBe(5);
  });

  it("[FAKE-7] cuts at any statement, cuts all, refuses, delays and heals", async () => {
    const proxy = await behindProxy();
    proxy.cut("before", { when: (sql) => sql.startsWith("insert") });
    await expect(insert(proxy, 1)).rejects.toThrow();
    const idle = await client(proxy);
    expect(proxy.connections).toBe(1);
    proxy.cutAll();
    await expect(idle.query("select 1")).rejects.toThrow();
    proxy.isRefusing = true;
    await expect(client(proxy)).rejects.toThrow();
    proxy.heal();
    proxy.delayMs = 40;
    const startedMs = performance.now();
    expect(await insert(proxy, 2)).toBe(true);
    // Connecting and three statements, there and back.
    expect(performance.now() - startedMs).toBeGreaterThan(300);
    expect(await rows()).toBe("2");
  });

  it("[FAKE-7] the server keeps what it has confirmed when it is restarted at once", async () => {
    const proxy = await behindProxy();
    expect(await insert(proxy, 1)).toBe(true);
    const open = await client(proxy);
    await open.query("begin");
    await open.query("insert into t values (2)");
    await server.restart("immediate");
    await expect(open.query("commit")).rejects.toThrow();
    expect(await insert(proxy, 3)).toBe(true);
    expect(await rows()).toBe("1 3");
  });
});
