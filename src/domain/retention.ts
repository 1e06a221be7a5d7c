import { inputsPrefix } from "./batches/create-batch.ts";
import { deleteOutputs, purgeOutputs } from "./batches/delete.ts";
import { eachDue, type SweepDeps } from "./each-due.ts";

/** Idempotency keys are kept this long after the record of their batch was deleted: a year. */
const KEY_RETENTION_MS = 365 * 24 * 3_600_000;

interface SweepReport {
  /** Batches that are `output_deleted` because of this sweep. */
  outputsDeleted: string[];
  inputsDeleted: number;
  /** Deletions that failed; the next sweep tries them again. */
  failures: { batchId: string; error: unknown }[];
}

/**
 * Deletes expired outputs, the files of batches that are `output_deleted`, the reference images of batches that ended
 * `inputRetentionMs` ago (0 keeps them), and old idempotency keys. Records stay. Everything that is due at `dueMs` is
 * deleted, and the deletion is dated `nowMs`. One failure does not stop the others. When `ending` aborts, the rest is left
 * to the next sweep.
 */
export async function sweep(
  deps: SweepDeps,
  options: { nowMs: number; dueMs: number; inputRetentionMs: number },
): Promise<SweepReport> {
  const { stores, blobs, ending } = deps;
  const { nowMs, dueMs, inputRetentionMs } = options;
  const report: SweepReport = { outputsDeleted: [], inputsDeleted: 0, failures: [] };
  for await (const { id } of eachDue((page) => stores.read.batches.outputsDue(dueMs, page), ending)) {
    try {
      if (await deleteOutputs(stores, id, nowMs)) report.outputsDeleted.push(id);
      await purgeOutputs(deps, id, nowMs);
    } catch (error) {
      report.failures.push({ batchId: id, error });
    }
  }
  const endedBefore = dueMs - inputRetentionMs;
  const inputsDue = eachDue((page) => stores.read.batches.inputsDue(endedBefore, page), ending);
  for await (const { id } of inputRetentionMs === 0 ? [] : inputsDue) {
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
