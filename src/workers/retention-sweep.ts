import { sweep } from "../domain/retention.ts";
import type { WorkerDeps } from "./deps.ts";

/** Between two sweeps a clock goes as far as the pause; one that went this much further was set, or was asleep. */
const CLOCK_JUMP_MS = 3_600_000;

export interface RetentionOptions {
  inputRetentionMs: number;
  /** Time between two sweeps. */
  everyMs: number;
}

/**
 * Sweeps at once and then again and again, until it is told to stop. Answers the function that stops it. After a jump
 * of the clock nothing is deleted for one more pause: a wrong time that is soon put right costs nobody an image.
 * Rule: CLOCK-3.
 */
export function startRetention(deps: WorkerDeps, options: RetentionOptions): () => Promise<void> {
  const stopping = new AbortController();
  const loop = async () => {
    let hasJumped = false;
    while (!stopping.signal.aborted) {
      if (hasJumped) deps.log.warn("the clock has jumped; nothing is deleted until the next sweep");
      else await sweepOnce(deps, options.inputRetentionMs);
      const beforeMs = deps.clock.nowMs();
      await deps.clock.sleep(options.everyMs, stopping.signal).catch(() => {});
      hasJumped = deps.clock.nowMs() - beforeMs - options.everyMs >= CLOCK_JUMP_MS;
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
