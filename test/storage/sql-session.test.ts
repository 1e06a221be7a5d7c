import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../src/kernel/clock.ts";
import { prepared, type Values } from "../../src/storage/dialects/sql-session.ts";
import { openSqlite } from "../../src/storage/dialects/sqlite.ts";
import { tempDir } from "../support/temp-dir.ts";

it("a prepared query is built once for a dialect, and each run brings its own values", async () => {
  const database = openSqlite(join(await tempDir(), "test.db"), systemClock);
  onTestFinished(() => database.close());
  const { build, all } = database.reader;
  let timesBuilt = 0;
  const among = prepared((db, { least, name }: Values<{ least: number; name: string }>) => {
    timesBuilt++;
    return db
      .selectFrom("batches")
      .select("id")
      .where("itemCount", ">=", least)
      .where("provider", "=", name)
      .where("status", "in", ["queued", "running"])
      .limit(7);
  });
  const compiled = [among(build, { least: 3, name: "x" }), among(build, { least: 4, name: "y" })].map(
    (query) => query.compile(),
  );
  expect(compiled.map(({ parameters }) => parameters)).toEqual([
    [3, "x", "queued", "running", 7],
    [4, "y", "queued", "running", 7],
  ]);
  expect(compiled[1]?.sql).toBe(compiled[0]?.sql);
  expect(timesBuilt).toBe(1);

  const sum = prepared((db, { a, b }: Values<{ a: number; b: number }>) =>
    db.selectNoFrom((eb) => [eb(a, "+", b).as("sum"), eb(a, "-", b).as("rest")]),
  );
  expect(await all(sum(build, { a: 3, b: 1 }))).toEqual([{ sum: 4, rest: 2 }]);
  expect(await all(sum(build, { a: 9, b: 4 }))).toEqual([{ sum: 13, rest: 5 }]);
});
