import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { type Clock, systemClock } from "../../src/kernel/clock.ts";
import { openPostgres } from "../../src/storage/dialects/postgres.ts";
import type { SqlDatabase } from "../../src/storage/dialects/sql-session.ts";
import { openSqlite } from "../../src/storage/dialects/sqlite.ts";
import { migrate } from "../../src/storage/migrate.ts";
import { sqlStores } from "../../src/storage/stores.ts";
import { emptyDatabase, hasPostgres } from "../support/postgres.ts";
import { tempDir } from "../support/temp-dir.ts";

const opened = (database: SqlDatabase) => {
  onTestFinished(() => database.close());
  return database;
};

async function addStep(database: SqlDatabase, step: { name: string; is_additive?: number }): Promise<void> {
  await database.transaction((tx) => tx.run(tx.build.insertInto("schema_migrations").values(step)));
}

function refusesTheNewer(open: () => Promise<SqlDatabase>) {
  it("[MIGRATE-2] a step that is unknown and additive is let be; any other is refused", async () => {
    const database = await open();
    await migrate(database);
    await addStep(database, { name: "998-wider", is_additive: 1 });
    await migrate(database);
    await addStep(database, { name: "999-other" });
    await expect(migrate(database)).rejects.toThrow("written by a newer version (999-other)");
  });
}

describe("the schema on SQLite", () => {
  refusesTheNewer(async () => opened(openSqlite(join(await tempDir(), "x.db"), systemClock)));
});

describe.skipIf(!hasPostgres)("the schema on PostgreSQL", () => {
  refusesTheNewer(async () => opened(await openPostgres({ url: await emptyDatabase() }, systemClock)));

  it("[MIGRATE-3] the schema of services that run is let be when they could not go on with another; those that were killed are waited out", async () => {
    const real = opened(await openPostgres({ url: await emptyDatabase() }, systemClock));
    const startMs = await real.clockMs(real.reader);
    let [sleptMs, looks] = [0, 0];
    // A look takes a millisecond, however slow the machine is.
    const database = { ...real, clockMs: async () => startMs + sleptMs + ++looks };
    const { write } = sqlStores(database);
    await migrate(database);
    const older = { role: "all", version: "0.9.1", providers: [], isPaused: false } as const;
    for (const id of ["running", "killed"]) await write((tx) => tx.workers.insert({ id, ...older }));
    await migrate(database);
    await database.transaction((tx) =>
      tx.run(tx.build.deleteFrom("schema_migrations").where("name", "=", "015-file-purposes")),
    );
    const passing: Clock = {
      ...systemClock,
      sleep: async (ms) => {
        sleptMs += ms;
        await write((tx) => tx.workers.beat("running", 4000));
      },
    };
    const used = "is used by services of an older version (1 all 0.9.1)";
    await expect(migrate(database, passing)).rejects.toThrow(used);
    expect(sleptMs).toBeLessThan(3000);
    await write((tx) => tx.workers.remove("running"));
    // The step itself, which is done already.
    await expect(migrate(database, passing)).rejects.toThrow("already exists");
    expect(sleptMs).toBe(10_000);
  });

  it("[MIGRATE-1] six processes at once on an empty database make one schema", async () => {
    const url = await emptyDatabase();
    const databases = await Promise.all(Array.from({ length: 6 }, () => openPostgres({ url }, systemClock)));
    for (const database of databases) opened(database);
    await Promise.all(databases.map((database) => migrate(database)));
    const ids = databases.map((database) => sqlStores(database).read.upstreamJobs.databaseId());
    expect(new Set(await Promise.all(ids)).size).toBe(1);
  });
});
