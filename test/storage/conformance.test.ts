import { describe, expect, it } from "vitest";
import { hasPostgres, openTestPostgres } from "../support/postgres.ts";
import { openStores } from "../support/stores.ts";
import { exerciseStores, methodsOf } from "./exercise-stores.ts";

describe("the stores", () => {
  it("[STORE-1] every method of every repository is exercised", async () => {
    const stores = await openStores();
    const { called } = await exerciseStores(stores);
    expect(methodsOf(stores.read).filter((method) => !called.has(method))).toEqual([]);
  });

  it.skipIf(!hasPostgres)("[STORE-1] return the same from PostgreSQL as from SQLite", async () => {
    const { lines: onSqlite } = await exerciseStores(await openStores());
    const { lines: onPostgres } = await exerciseStores((await openTestPostgres()).stores);
    expect(onPostgres).toHaveLength(onSqlite.length);
    for (const [at, line] of onPostgres.entries()) expect(line, `call ${at + 1}`).toEqual(onSqlite[at]);
  });
});
