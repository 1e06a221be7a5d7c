import type { Batch } from "../client/read-batch.ts";
import type { Clock } from "../kernel/clock.ts";

/**
 * Describes how far a run is, over all of its batches: `12/200 images, 0 failed, 3.4/s, running`. The rate is what was made since
 * the first description; the status is that of a batch that runs, else of one that has not ended.
 * Rule: RUN-29.
 */
export function progressOf(states: readonly Batch[], clock: Clock): () => string {
  let first: { doneCount: number; atMs: number } | null = null;
  return () => {
    const { successCount, failCount } = countsOf(states);
    const doneCount = successCount + failCount;
    first ??= { doneCount, atMs: clock.nowMs() };
    const seconds = (clock.nowMs() - first.atMs) / 1000;
    const rate = seconds > 0 ? (doneCount - first.doneCount) / seconds : 0;
    const total = states.reduce((sum, batch) => sum + (batch.itemCount ?? 0), 0);
    const isCounted = states.every((batch) => batch.hasCounts);
    const status = statusOf(states);
    const parts = [
      ...(isCounted ? [`${successCount}/${total} images`, `${failCount} failed`] : []),
      ...(rate > 0 ? [`${rate.toFixed(1)}/s`] : []),
      ...(status === null ? [] : [status]),
    ];
    return parts.join(", ") || "ended";
  };
}

/**
 * The same while batches are still being submitted: `0/10000 images, submitting batch 3 of 50`. `imageCount` is that of
 * the whole run.
 */
export function submittingText(
  made: readonly Batch[],
  run: { imageCount: number; batch: number; batchCount: number },
): string {
  if (run.batchCount === 1) return "submitting";
  const { successCount } = countsOf(made);
  return `${successCount}/${run.imageCount} images, submitting batch ${run.batch} of ${run.batchCount}`;
}

function countsOf(states: readonly Batch[]): { successCount: number; failCount: number } {
  const sum = (value: (batch: Batch) => number) => states.reduce((total, batch) => total + value(batch), 0);
  return { successCount: sum((batch) => batch.successCount), failCount: sum((batch) => batch.failCount) };
}

/** Null when all have ended. */
function statusOf(states: readonly Batch[]): string | null {
  const open = states.filter((batch) => !batch.isDone);
  const telling = open.find((batch) => batch.status === "running") ?? open[0];
  return telling?.status.replaceAll("_", " ") ?? null;
}
