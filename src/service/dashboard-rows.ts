import { jobsText, type ShownJob, type Waiting, waitingText } from "../contract/waiting.ts";
import type { BatchRow } from "../dashboard/model.ts";
import { costOf } from "../domain/batches/create-batch.ts";
import type { Stores } from "../domain/ports/stores.ts";
import type { BatchRecord } from "../domain/records.ts";
import type { Clock } from "../kernel/clock.ts";

/** How many of the newest batches are shown when the view opens. */
const FIRST_ROWS = 500;

/** The origin of the rows that the live view shows. */
export interface RowSource {
  stores: Stores;
  clock: Clock;
  /** Why the items of a batch cannot be made now; null when they can. */
  waitingOf(batch: BatchRecord): Waiting | null;
  /** The jobs of a batch that are at work at an upstream. */
  jobsOf(batch: BatchRecord): Promise<ShownJob[]>;
}

/** A row, and the batch that it shows. */
interface ShownBatch {
  row: BatchRow;
  batch: BatchRecord;
}

/** Returns the rows of these batches. Deleted ones are left out. */
export async function changedRows(deps: RowSource, ids: readonly string[]): Promise<ShownBatch[]> {
  const batches: (BatchRecord | null)[] = [];
  for (const id of ids) batches.push(await deps.stores.read.batches.byId(id));
  return rowsOf(deps, batches);
}

async function rowsOf(deps: RowSource, batches: Iterable<BatchRecord | null>): Promise<ShownBatch[]> {
  const shown: ShownBatch[] = [];
  for (const batch of batches) {
    if (!isShown(batch)) continue;
    shown.push({ batch, row: await toRow(deps, batch, await costOf(deps.stores.read, batch)) });
  }
  return shown;
}

/** Returns all batches at work, and the newest of the others. */
export async function firstRows(deps: RowSource): Promise<ShownBatch[]> {
  const { stores } = deps;
  const working = await stores.read.batches.withStatus([
    "queued",
    "running",
    "processing_results",
    "settling",
  ]);
  const latest = await stores.read.batches.latest(FIRST_ROWS);
  const byId = new Map([...working, ...latest].map((batch) => [batch.id, batch]));
  return rowsOf(deps, byId.values());
}

function isShown(batch: BatchRecord | null): batch is BatchRecord {
  return batch !== null && batch.recordDeletedAtMs === null;
}

function waitingWords(deps: RowSource, batch: BatchRecord): string | null {
  const waiting = deps.waitingOf(batch);
  return waiting && waitingText(waiting);
}

/** The words about a batch that change without the batch: why it waits, and its jobs. */
export async function wordsOf(deps: RowSource, batch: BatchRecord): Promise<string> {
  return JSON.stringify([waitingWords(deps, batch), await jobsWords(deps, batch)]);
}

async function jobsWords(deps: RowSource, batch: BatchRecord): Promise<string | null> {
  return jobsText(await deps.jobsOf(batch), deps.clock.nowMs());
}

async function toRow(deps: RowSource, batch: BatchRecord, costMicroUsd: number): Promise<BatchRow> {
  return {
    id: batch.id,
    name: batch.taskName,
    status: batch.status,
    model: batch.model,
    provider: batch.provider,
    source: batch.source,
    itemCount: batch.itemCount,
    successCount: batch.successCount,
    failCount: batch.failCount,
    estimatedMicroUsd: batch.estimatedMicroUsd,
    costMicroUsd,
    isPlay: batch.price.isPlay === true,
    createdAtMs: batch.createdAtMs,
    endedAtMs: batch.endedAtMs,
    error: batch.error === null ? null : `${batch.error.code}: ${batch.error.message}`,
    waiting: waitingWords(deps, batch),
    jobs: await jobsWords(deps, batch),
  };
}
