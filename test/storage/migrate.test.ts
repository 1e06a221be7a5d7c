import { join } from "node:path";
import Sqlite from "better-sqlite3";
import pg from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { LOCAL_STORAGE } from "../../src/config/storage-places.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { openStorage } from "../../src/service/storage/open-storage.ts";
import { openPostgres } from "../../src/storage/dialects/postgres.ts";
import type { SqlDatabase } from "../../src/storage/dialects/sql-session.ts";
import { openSqlite } from "../../src/storage/dialects/sqlite.ts";
import { migrate } from "../../src/storage/foundation.ts";
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

const BEFORE =
  "create table schema_migrations (name text primary key); insert into schema_migrations values ('001-foundation')";

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

  it("a data directory from before 0.1.0 is refused by name, with what to do, and stays as it is", async () => {
    const directory = await tempDir();
    const file = join(directory, "imgbatch.db");
    new Sqlite(file).exec(BEFORE).close();
    await expect(openStorage(LOCAL_STORAGE, { directory })).rejects.toMatchObject({
      code: "EARLIER_VERSION",
      message: expect.stringContaining(`${file}: The database was made by a version before 0.1.0`),
      advice: expect.stringContaining("--data"),
    });
    const after = new Sqlite(file, { readonly: true });
    expect(after.prepare("select name from sqlite_master where type = 'table'").pluck().all()).toEqual([
      "schema_migrations",
    ]);
    after.close();
  });
});

describe.skipIf(!hasPostgres)("the schema on PostgreSQL", () => {
  refusesTheNewer(async () => opened(await openPostgres({ url: await emptyDatabase() }, systemClock)));

  it("a database from before 0.1.0 is refused", async () => {
    const url = await emptyDatabase();
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query(BEFORE);
    await client.end();
    const database = opened(await openPostgres({ url }, systemClock));
    await expect(migrate(database)).rejects.toMatchObject({ code: "EARLIER_VERSION" });
  });

  it("six processes at once on an empty database make one schema", async () => {
    const url = await emptyDatabase();
    const databases = await Promise.all(Array.from({ length: 6 }, () => openPostgres({ url }, systemClock)));
    for (const database of databases) opened(database);
    await Promise.all(databases.map((database) => migrate(database)));
    const ids = databases.map((database) => sqlStores(database).read.upstreamJobs.databaseId());
    expect(new Set(await Promise.all(ids)).size).toBe(1);
  });
});
