import { sweep } from "../domain/retention.ts";
import type { WorkerDeps } from "./deps.ts";

export interface RetentionOptions {
  inputRetentionMs: number;
  /** Time between two sweeps. */
  everyMs: number;
}

/** Sweeps at once and then again and again, until it is told to stop. Answers the function that stops it. */
export function startRetention(deps: WorkerDeps, options: RetentionOptions): () => Promise<void> {
  const stopping = new AbortController();
  const loop = async () => {
    while (!stopping.signal.aborted) {
      await sweepOnce(deps, options.inputRetentionMs);
      await deps.clock.sleep(options.everyMs, stopping.signal).catch(() => {});
    }
  };
  const running = loop();
  return async () => {
    stopping.abort();
    await running;
  };
}

async function sweepOnce(deps: WorkerDeps, inputRetentionMs: number): Promise<void> {
  try {
    const report = await sweep(deps, { nowMs: deps.clock.nowMs(), inputRetentionMs });
    for (const batchId of report.outputsDeleted) {
      deps.feed.publish({ type: "batch", batchId, status: "output_deleted" });
    }
    for (const { batchId, error } of report.failures) {
      deps.log.warn("files could not be deleted; trying again later", {
        batch: batchId,
        error: String(error),
      });
    }
  } catch (error) {
    deps.log.error("the retention sweep failed; trying again later", { error: String(error) });
  }
}
