import type { Batch } from "../client/read-batch.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { Clock } from "../kernel/clock.ts";
import { readLedger, recordBatch, writeLedger } from "./ledger.ts";
import { withRunLock } from "./run-lock.ts";

/**
 * Notes in a run's ledger how its batches stand. When another process works on the run, that one keeps the ledger:
 * then this does nothing.
 * Rule: RUN-21.
 */
export async function recordInLedger(dir: string, batches: readonly Batch[], clock: Clock): Promise<void> {
  const byId = new Map(batches.map((batch) => [batch.id, batch]));
  try {
    await withRunLock(dir, { clock, patienceMs: 0 }, async () => {
      // Read again: it may have changed while this process waited for the batches.
      const ledger = await readLedger(dir);
      if (ledger === null) return;
      for (const entry of ledger.batches) {
        const batch = entry.id === null ? undefined : byId.get(entry.id);
        if (batch !== undefined) recordBatch(entry, batch);
      }
      await writeLedger(dir, ledger);
    });
  } catch (error) {
    if (!(error instanceof ImgbatchError) || error.code !== "DIRECTORY_IN_USE") throw error;
  }
}
