import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { DATA_FILES } from "../../src/contract/data-directory.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { copyTables, isUnused, sumTables, tablesOf } from "../../src/storage/copy.ts";
import type { SqlDatabase } from "../../src/storage/dialects/sql-session.ts";
import { openSqlite } from "../../src/storage/dialects/sqlite.ts";
import { sqlStores } from "../../src/storage/stores.ts";
import { FakeProvider } from "../support/fake-provider.ts";
import { hasPostgres, openTestPostgres } from "../support/postgres.ts";
import { items, MODEL, startTestService } from "../support/service.ts";

/** The database of a service that has made two batches of this many images, with a NUL in a text. */
async function usedDatabase(count = 2): Promise<SqlDatabase> {
  const provider = new FakeProvider();
  const service = await startTestService({ providers: [provider] });
  for (const _ of [1, 2]) {
    const { id } = await service.submit({ model: MODEL, items: items(count) });
    await service.until(id);
  }
  await service.close(0);
  const database = openSqlite(join(service.data, DATA_FILES.database), systemClock);
  onTestFinished(() => database.close());
  await database.transaction(async (tx) => {
    await tx.run(tx.build.updateTable("items").set({ prompt: "\0" }).where("position", "=", 0));
    // The number of a deleted row is not given again.
    await tx.run(tx.build.deleteFrom("batch_events").where("to", "=", "completed"));
  });
  return database;
}

describe.skipIf(!hasPostgres)("the tables of a database", () => {
  it("[MOVE-1] have the same rows and sums in PostgreSQL, and the next row gets the next number", async () => {
    const from = await usedDatabase(150);
    const { database: to, stores } = await openTestPostgres();
    const tables = await tablesOf(from);
    expect(await isUnused(to)).toBe(true);
    await copyTables(from, to, tables);
    expect(await isUnused(to)).toBe(false);
    const [before, after] = [await sumTables(from, tables), await sumTables(to, tables)];
    expect(after).toEqual(before);
    expect(before.find(({ name }) => name === "items")?.rows).toBe(300);
    expect(await stores.read.accounts.list()).toEqual(await sqlStores(from).read.accounts.list());
    const events = (database: SqlDatabase) =>
      database.reader.all(
        database.reader.build.selectFrom("batch_events").select("seq").orderBy("seq", "desc"),
      );
    const known = await events(from);
    const { id = "" } = (await stores.read.batches.all())[0] ?? {};
    const event = { batchId: id, from: null, to: "queued", atMs: 1 } as const;
    await to.transaction((tx) => tx.run(tx.build.insertInto("batch_events").values(event)));
    expect((await events(to))[0]?.seq).toBe((known[0]?.seq ?? 0) + 2);
  });

  it("[MOVE-1] are copied all or not at all, and a single other value changes the sum of its table", async () => {
    const from = await usedDatabase();
    const { database: to } = await openTestPostgres();
    const tables = await tablesOf(from);
    const broken = tables.map((table) => (table.name === "outputs" ? { ...table, name: "missing" } : table));
    await expect(copyTables(from, to, broken)).rejects.toThrow();
    expect(await isUnused(to)).toBe(true);
    await copyTables(from, to, tables);
    const before = await sumTables(to, tables);
    await to.transaction((tx) =>
      tx.run(tx.build.updateTable("outputs").set({ widthPx: 7 }).where("imageIndex", "=", 0)),
    );
    const after = await sumTables(to, tables);
    const changed = before.filter(({ digest }, i) => digest !== after[i]?.digest);
    expect(changed.map(({ name }) => name)).toEqual(["outputs"]);
  });
});
