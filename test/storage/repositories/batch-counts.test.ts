import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { describe, expect, it } from "vitest";
import type { BatchStatus } from "../../../src/contract/statuses.ts";
import type { Stores, Transaction } from "../../../src/domain/ports/stores.ts";
import { onEachDialect } from "../../support/dialects.ts";
import { openBeside } from "../../support/service.ts";
import { openBatchRecord } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

const MOVES: readonly BatchStatus[] = ["running", "processing_results", "settling", "completed"];

/** Moves a batch, with nothing beside it. */
function move(tx: Transaction, batchId: string, from: BatchStatus, to: BatchStatus): Promise<void> {
  return tx.batches
    .changeStatus(batchId, from, to)
    .then(() => tx.batches.appendEvent({ batchId, from, to, atMs: 1 }));
}

/** Takes each batch through the first of the moves, those of different batches at the same time. */
async function moveAll(stores: Stores, ids: readonly string[], moves: readonly BatchStatus[]) {
  const through = async (batchId: string) => {
    let from: BatchStatus = "queued";
    for (const to of moves) {
      await stores.write((tx) => move(tx, batchId, from, to));
      from = to;
    }
  };
  await Promise.all(ids.map(through));
}

onEachDialect("the counts of batches", (open) => {
  it("[TX-7] are right after every transaction, through as many moves as come, and forget what is undone", async () => {
    const stores = await open();
    const ids: string[] = [];
    for (let i = 0; i < 100; i++) ids.push((await openBatchRecord(stores, 0)).id);
    await moveAll(stores, ids.slice(0, 60), MOVES);
    await moveAll(stores, ids.slice(60, 90), MOVES.slice(0, 2));
    const expected = { queued: 10, processing_results: 30, completed: 60 };
    expect(await stores.read.batches.countByStatus()).toEqual(expected);
    const undone = stores.write(async (tx) => {
      for (const id of ids.slice(90)) await move(tx, id, "queued", "running");
      expect(await tx.batches.countByStatus()).toMatchObject({ running: 10 });
      throw new Error("undone");
    });
    await expect(undone).rejects.toThrow("undone");
    expect(await stores.read.batches.countByStatus()).toEqual(expected);
  });
});

describe("the counts of batches", () => {
  it("[TX-7] leave only the newest moves to be counted, and begin with the batches of an older database", async () => {
    const data = await tempDir();
    const { stores, close } = await openBeside(data);
    for (let i = 0; i < 300; i++) await openBatchRecord(stores, 0);
    await close();
    const db = new Sqlite(join(data, "imgbatch.db"));
    const uncounted = "SELECT count(*) FROM batch_events WHERE uncounted IS NOT NULL";
    expect(db.prepare(uncounted).pluck().get()).toBe(300 - 256);
    db.exec(`DROP INDEX events_uncounted; ALTER TABLE batch_events DROP COLUMN uncounted; DROP TABLE batch_counts;
             DELETE FROM schema_migrations WHERE name = '020-batch-counts'; UPDATE batches SET status = 'failed' WHERE seq <= 7`);
    db.close();
    const { read } = (await openBeside(data)).stores;
    expect(await read.batches.countByStatus()).toEqual({ queued: 293, failed: 7 });
  });
});
