import type { Batch } from "../../client/wire/read-batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import { withRunLock } from "./lock.ts";
import { readRunState, recordBatch, writeRunState } from "./run-state.ts";

/**
 * Writes the current state of its batches into a run's state. Does nothing while another process works on the run, since
 * that process keeps the run state.
 */
export async function recordInRunState(dir: string, batches: readonly Batch[], clock: Clock): Promise<void> {
  const byId = new Map(batches.map((batch) => [batch.id, batch]));
  try {
    await withRunLock(dir, { clock, patienceMs: 0 }, async () => {
      // Read again: it may have changed while this process waited for the batches.
      const runState = await readRunState(dir);
      if (runState === null) return;
      for (const entry of runState.batches) {
        const batch = entry.id === null ? undefined : byId.get(entry.id);
        if (batch !== undefined) recordBatch(entry, batch);
      }
      await writeRunState(dir, runState);
    });
  } catch (error) {
    if (!(error instanceof ImgbatchError) || error.code !== "DIRECTORY_IN_USE") throw error;
  }
}
