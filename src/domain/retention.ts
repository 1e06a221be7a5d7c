import { inputsPrefix } from "./batches/create-batch.ts";
import { deleteOutputs, purgeOutputs } from "./batches/delete-outputs.ts";
import type { BlobStore } from "./ports/blob-store.ts";
import type { Stores } from "./ports/stores.ts";

/** How many batches are looked up at a time. */
const PAGE = 200;
/** Idempotency keys are kept this long after the record of their batch was deleted: a year. */
const KEY_RETENTION_MS = 365 * 24 * 3_600_000;

export interface SweepReport {
  /** Batches that are `output_deleted` because of this sweep. */
  outputsDeleted: string[];
  inputsDeleted: number;
  /** Deletions that failed; the next sweep tries them again. */
  failures: { batchId: string; error: unknown }[];
}

/**
 * Deletes expired outputs, the files of batches that are `output_deleted`, the reference images of batches that ended
 * `inputRetentionMs` ago (0 keeps them), and old idempotency keys. Records stay. Everything that is due at `dueMs` is
 * deleted, and the deletion is dated `nowMs`. One failure does not stop the others.
 */
export async function sweep(
  deps: { stores: Stores; blobs: BlobStore },
  options: { nowMs: number; dueMs: number; inputRetentionMs: number },
): Promise<SweepReport> {
  const { stores, blobs } = deps;
  const { nowMs, dueMs, inputRetentionMs } = options;
  const report: SweepReport = { outputsDeleted: [], inputsDeleted: 0, failures: [] };
  const outputsDue = (afterSeq: number) => stores.read.batches.outputsDue(dueMs, { afterSeq, limit: PAGE });
  for await (const id of eachDue(outputsDue)) {
    try {
      if (await deleteOutputs(stores, id, nowMs)) report.outputsDeleted.push(id);
      await purgeOutputs(deps, id, nowMs);
    } catch (error) {
      report.failures.push({ batchId: id, error });
    }
  }
  const endedBefore = dueMs - inputRetentionMs;
  const inputsDue = (afterSeq: number) =>
    stores.read.batches.inputsDue(endedBefore, { afterSeq, limit: PAGE });
  for await (const id of inputRetentionMs === 0 ? [] : eachDue(inputsDue)) {
    try {
      await blobs.deleteAll(inputsPrefix(id));
      await stores.write((tx) => tx.batches.update(id, { inputsPurgedAtMs: nowMs }));
      report.inputsDeleted++;
    } catch (error) {
      report.failures.push({ batchId: id, error });
    }
  }
  await stores.write((tx) => tx.idempotency.removeOfRecordsDeletedBefore(dueMs - KEY_RETENTION_MS));
  return report;
}

/** Each page begins behind the last batch of the previous one, so a batch that cannot be deleted is not read again. */
async function* eachDue(
  page: (afterSeq: number) => Promise<readonly { id: string; seq: number }[]>,
): AsyncGenerator<string> {
  for (let afterSeq = 0; ; ) {
    const found = await page(afterSeq);
    for (const { id, seq } of found) {
      yield id;
      afterSeq = seq;
    }
    if (found.length < PAGE) return;
  }
}
