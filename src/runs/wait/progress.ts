import type { Batch } from "../../client/wire/read-batch.ts";
import { waitingText } from "../../contract/waiting.ts";
import type { Clock } from "../../kernel/clock.ts";
import { clockTime, formatDuration } from "../../kernel/durations.ts";
import { counted, lowerFirst } from "../../kernel/text.ts";

/**
 * Returns a function that describes the progress over all batches of a run: `12/200 images, 0 failed, 3.4/s, running, about 55 s left`. The
 * rate counts images since every batch was looked at: what is known of them before that is as old as their creation. The status is that of a running batch, else of one that has not ended; it says why batches wait. Batches
 * in `retries` make images of the others again; such an image counts once. An image that is superseded does not count.
 */
export function progressOf(
  states: readonly Batch[],
  clock: Clock,
  { retries = new Set(), superseded = new Map() }: CountOptions = {},
): () => string {
  const unseen = states.filter((batch) => !batch.isDone);
  let first: { doneCount: number; atMs: number } | null = null;
  return () => {
    const { successCount, failCount, total } = countsOf(states, retries, superseded);
    const doneCount = successCount + failCount;
    if (!unseen.some((batch) => states.includes(batch))) first ??= { doneCount, atMs: clock.nowMs() };
    const seconds = first === null ? 0 : (clock.nowMs() - first.atMs) / 1000;
    const rate = first !== null && seconds > 0 ? (doneCount - first.doneCount) / seconds : 0;
    const isCounted = states.every((batch) => batch.hasCounts);
    const status = statusOf(states);
    const parts = [
      ...(isCounted ? [`${successCount}/${total} images`, `${failCount} failed`] : []),
      ...(rate > 0 ? [`${rate.toFixed(1)}/s`] : []),
      ...(status === null ? [] : [status]),
      ...(rate > 0 && isWorking(states)
        ? [`about ${formatDuration(((total - doneCount) / rate) * 1000)} left`]
        : []),
    ];
    return parts.join(", ") || "ended";
  };
}

/** Describes a service that cannot be asked now: `no answer from http://… (connection refused); trying until 21:46:00`. */
export function outageText({ message }: Error, untilMs: number): string {
  return `${lowerFirst(message).replace(/\.$/, "")}; trying until ${clockTime(untilMs)}`;
}

/**
 * The same as `progressOf` while batches are still being submitted: `0/10000 images, submitting batch 3 of 50`. `imageCount` is that of
 * the whole run.
 */
export function submittingText(
  made: readonly Batch[],
  run: { imageCount: number; batch: number; batchCount: number },
): string {
  if (run.batchCount === 1) return "submitting";
  const { successCount } = countsOf(made, new Set());
  return `${successCount}/${run.imageCount} images, submitting batch ${run.batch} of ${run.batchCount}`;
}

interface CountOptions {
  retries?: ReadonlySet<string>;
  superseded?: ReadonlyMap<string, number>;
}

/** Returns a batch without its superseded images. Which of them failed is not known here. */
function withoutSuperseded(batch: Batch, count: number): Batch {
  if (count === 0) return batch;
  const itemCount = Math.max(0, (batch.itemCount ?? 0) - count);
  const failCount = Math.min(batch.failCount, itemCount);
  return {
    ...batch,
    itemCount,
    failCount,
    successCount: Math.min(batch.successCount, itemCount - failCount),
  };
}

/** Counts images. One that is made again no longer counts as failed, or as a success if it was lost. */
function countsOf(
  batches: readonly Batch[],
  retries: ReadonlySet<string>,
  superseded: ReadonlyMap<string, number> = new Map(),
): { successCount: number; failCount: number; total: number } {
  const states = batches.map((batch) => withoutSuperseded(batch, superseded.get(batch.id) ?? 0));
  const sum = (value: (batch: Batch) => number) => states.reduce((total, batch) => total + value(batch), 0);
  const total = sum((batch) => batch.itemCount ?? 0);
  const again = sum((batch) => (retries.has(batch.id) ? (batch.itemCount ?? 0) : 0));
  const failed = sum((batch) => batch.failCount);
  const lost = Math.max(0, again - failed);
  return {
    successCount: Math.max(0, sum((batch) => batch.successCount) - lost),
    failCount: Math.max(0, failed - again),
    total: total - again,
  };
}

/** Whether images are still being made, and no batch waits for a provider. */
function isWorking(states: readonly Batch[]): boolean {
  const open = states.filter((batch) => !batch.isDone);
  return open.length > 0 && open.every((batch) => batch.waiting === null);
}

/** Null when all have ended. */
function statusOf(states: readonly Batch[]): string | null {
  const open = states.filter((batch) => !batch.isDone);
  const waiting = open.filter((batch) => batch.waiting !== null);
  const working = open.filter((batch) => batch.waiting === null && batch.status !== "queued");
  const telling = working.find((batch) => batch.status === "running") ?? working[0] ?? open[0];
  const status = telling ? statusText(telling) : null;
  const [first] = waiting;
  if (!first?.waiting) return status;
  const why = waitingText(first.waiting);
  return working.length === 0 ? why : `${status}, ${counted(waiting.length, "batch", "batches")} ${why}`;
}

function statusText({ status, queuedBehind }: Batch): string {
  if (queuedBehind === null || queuedBehind === 0) return status.replaceAll("_", " ");
  return `waiting behind ${counted(queuedBehind, "other batch", "other batches")}`;
}
