import { join } from "node:path";
import Sqlite from "better-sqlite3";
import type { Compilable } from "kysely";
import { expect, it, onTestFinished } from "vitest";
import { openSqlite } from "../../../../src/storage/dialects/sqlite.ts";
import { keyedRequestRepository } from "../../../../src/storage/repositories/realtime/keyed-requests.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { openBeside } from "../../../support/service.ts";
import { tempDir } from "../../../support/temp-dir.ts";

it("[ONCE-7] a kept answer is removed by its key, without a look at the others", async () => {
  const data = await tempDir();
  await openBeside(data);
  const file = join(data, "imgbatch.db");
  const database = openSqlite(file, new FakeClock());
  const plain = new Sqlite(file, { readonly: true });
  onTestFinished(async () => {
    plain.close();
    await database.close();
  });
  const plans: unknown[] = [];
  const run = async (query: Compilable<unknown>) => {
    const { sql, parameters } = query.compile();
    plans.push(...plain.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...parameters));
    return 0;
  };
  const requests = keyedRequestRepository({ ...database.reader, run });
  await requests.remove({ apiKeyId: "a", key: "k", realtimeId: "gen_1" });
  expect(plans).toEqual([
    expect.objectContaining({
      detail: expect.stringMatching(/^SEARCH keyed_requests USING INDEX .*api_key_id=\? AND key=\?/),
    }),
  ]);
});
