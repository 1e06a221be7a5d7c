import { join } from "node:path";
import Sqlite from "better-sqlite3";
import type { Compilable } from "kysely";
import { expect, it, onTestFinished } from "vitest";
import type { SqlSession } from "../../../src/storage/dialects/sql-session.ts";
import { openSqlite } from "../../../src/storage/dialects/sqlite.ts";
import { itemRepository } from "../../../src/storage/repositories/items.ts";
import { realtimeRepositories } from "../../../src/storage/repositories/realtime.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { openBeside } from "../../support/service.ts";
import { tempDir } from "../../support/temp-dir.ts";

/** The steps by which SQLite would run the queries of some work on an empty database, of which it runs none. */
async function plansOf(work: (session: SqlSession) => Promise<unknown>): Promise<string[]> {
  const data = await tempDir();
  await openBeside(data);
  const file = join(data, "imgbatch.db");
  const database = openSqlite(file, new FakeClock());
  const plain = new Sqlite(file, { readonly: true });
  onTestFinished(async () => {
    plain.close();
    await database.close();
  });
  const plans: string[] = [];
  const explain = async (query: Compilable<unknown>) => {
    const { sql, parameters } = query.compile();
    const steps = plain.prepare<unknown[], { detail: string }>(`EXPLAIN QUERY PLAN ${sql}`);
    plans.push(...steps.all(...parameters).map(({ detail }) => detail));
    return [];
  };
  const run = async (query: Compilable<unknown>) => void (await explain(query));
  await work({ ...database.reader, run, all: explain });
  return plans;
}

it("a kept answer is removed by its key, without a look at the others", async () => {
  const kept = { apiKeyId: "a", key: "k", realtimeId: "gen_1" };
  const plans = await plansOf((session) => realtimeRepositories(session).keyedRequests.remove(kept));
  expect(plans).toEqual([
    expect.stringMatching(/^SEARCH keyed_requests USING INDEX .*api_key_id=\? AND key=\?/),
  ]);
});

it("the retries of a batch are found without a look at other batches", async () => {
  const batch = { id: "b", apiKeyId: "a", parentBatchId: null };
  const plans = await plansOf((session) => itemRepository(session).retriesOf(batch, ["one", "two"]));
  expect(plans).toContainEqual(
    expect.stringMatching(/^SEARCH batches USING INDEX batches_by_parent \(parent_batch_id=\? AND seq>\?\)/),
  );
  expect(plans.filter((step) => step.includes("SCAN") || step.includes("TEMP B-TREE"))).toEqual([]);
});
