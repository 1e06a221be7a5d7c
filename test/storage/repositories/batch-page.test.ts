import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { describe, expect, it } from "vitest";
import type { BatchPage } from "../../../src/domain/ports/stores.ts";
import { openBeside } from "../../support/service.ts";
import { openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

const COUNT = 12_000;

/** A key with 12,000 batches: `test`, then `number 1` and so on, two in each millisecond. Each thousandth was downloaded. */
async function manyBatches() {
  const data = await tempDir();
  const { stores } = await openBeside(data);
  const { id, apiKeyId } = await openBatchRecord(stores);
  const db = new Sqlite(join(data, "imgbatch.db"));
  const changed: Record<string, string> = {
    id: "'copy_' || n",
    task_name: "'number ' || n",
    task_name_folded: "'number ' || n",
    created_at_ms: "2 + n / 2",
    downloaded_at_ms: "iif(n % 1000 = 0, 5, null)",
    record_deleted_at_ms: "iif(n % 7 = 0, 5, null)",
    source: "iif(n % 2 = 0, 'batch', 'native')",
  };
  const columns = db
    .prepare("SELECT name FROM pragma_table_info('batches') WHERE name <> 'seq'")
    .all()
    .map((row) => (row as { name: string }).name);
  db.prepare(
    `WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ${COUNT - 1})
     INSERT INTO batches (${columns}) SELECT ${columns.map((name) => changed[name] ?? name)}
     FROM numbers, batches WHERE batches.id = ?`,
  ).run(id);
  db.close();
  return (filter: Omit<BatchPage, "apiKeyId">) => stores.read.batches.page({ apiKeyId, ...filter });
}

describe("a page of many batches", () => {
  it("has the same batches wherever they lie, and lets others work while it looks for them", async () => {
    const page = await manyBatches();
    const all = await page({ limit: COUNT });
    expect(all).toHaveLength(COUNT - Math.floor((COUNT - 1) / 7));
    const seqs = (rows: typeof all) => rows.map(({ seq }) => seq);
    for (const offset of [0, 1, 4285, 4286, 9000, all.length - 2, all.length, COUNT]) {
      expect(seqs(await page({ limit: 5, offset }))).toEqual(seqs(all.slice(offset, offset + 5)));
    }
    const named = all.filter(({ taskName }) => taskName.includes("99"));
    for (const offset of [0, 3, 200, named.length - 1, named.length]) {
      const found = await page({ taskName: "99", limit: 200, offset });
      expect(seqs(found)).toEqual(seqs(named.slice(offset, offset + 200)));
    }
    const native = all.filter(({ source }) => source === "native");
    expect(seqs(await page({ source: "native", limit: COUNT }))).toEqual(seqs(native));
    for (const isDownloaded of [true, false]) {
      const some = all.filter(({ downloadedAtMs }) => (downloadedAtMs !== null) === isDownloaded);
      expect(seqs(await page({ isDownloaded, limit: COUNT }))).toEqual(seqs(some));
      expect(seqs(await page({ isDownloaded, status: "queued", limit: COUNT }))).toEqual(seqs(some));
      expect(await page({ isDownloaded, status: "completed", limit: COUNT })).toEqual([]);
    }
    const [after] = named.slice(-2);
    expect(seqs(await page({ taskName: "99", limit: 5, ...(after && { after }) }))).toEqual(
      seqs(named.slice(-1)),
    );

    let turns = 0;
    let next = setImmediate(function turn() {
      turns++;
      next = setImmediate(turn);
    });
    expect(await page({ taskName: "none", limit: 5 })).toEqual([]);
    clearImmediate(next);
    expect(turns).toBeGreaterThanOrEqual(2);
  });
});
