import { KEPT, sweep } from "../domain/retention.ts";
import { callAfter } from "../kernel/clock.ts";
import type { WorkerDeps } from "./deps.ts";
import { removeUnknown } from "./scheduler.ts";

/** No request takes this long from the storing of its files to its acceptance. */
const ABANDONED_MS = 3_600_000;

interface RetentionOptions {
  inputRetentionMs: number;
  /** Time between two sweeps. */
  everyMs: number;
  /**
   * The time that a sweep at the end may take, for a process that ends before its second look; 0 or left out: there is none.
   */
  lastSweepMs?: number;
}

/**
 * Compares the clock at once with when it was last seen, and then sweeps after each pause. The first sweep of a process
 * deletes only the files of batches that are `output_deleted` already. Only one of several processes sweeps.
 *
 * Returns the function that ends the sweeps. With `lastSweepMs`, and unless the stop is urgent, this function first deletes what was due
 * already at the last sweep of an earlier process, at least one pause before.
 */
export function startRetention(
  deps: WorkerDeps,
  options: RetentionOptions,
): (how?: { isUrgent: boolean }) => Promise<void> {
  const { clock, log } = deps;
  const stopping = new AbortController();
  /** What is due at the end. */
  let leftDueMs = 0;
  const loop = async () => {
    let scannedAtMs: number | null = null;
    while (!stopping.signal.aborted) {
      try {
        const { isFirst } = deps.presence;
        const thisScanMs = clock.monotonicMs();
        if (isFirst)
          leftDueMs = await scanAndSweep(
            deps,
            options,
            scannedAtMs === null ? null : thisScanMs - scannedAtMs,
          );
        scannedAtMs = isFirst ? thisScanMs : null;
        await deps.uploads.endIdle();
      } catch (error) {
        log.error("the retention sweep failed; trying again later", { error: String(error) });
      }
      await clock.sleep(options.everyMs, stopping.signal).catch(() => {});
    }
  };
  const running = loop();
  return async ({ isUrgent } = { isUrgent: false }) => {
    stopping.abort();
    await running;
    const { inputRetentionMs, lastSweepMs = 0 } = options;
    if (leftDueMs === 0 || lastSweepMs === 0 || isUrgent) return;
    const over = new AbortController();
    const limit = callAfter(clock, lastSweepMs, () => over.abort());
    await sweepDue(deps, { nowMs: clock.nowMs(), dueMs: leftDueMs, inputRetentionMs }, over.signal)
      .catch((error) => log.error("the last retention sweep failed", { error: String(error) }))
      .finally(() => limit.stop());
  };
}

/**
 * `elapsedMs` is the time since the last check, and null for the first check. Returns until when images were due that the
 * first sweep of a process leaves for its end, in Unix milliseconds; 0: it leaves none.
 */
async function scanAndSweep(
  deps: WorkerDeps,
  { inputRetentionMs, everyMs, lastSweepMs = 0 }: RetentionOptions,
  elapsedMs: number | null,
): Promise<number> {
  const { stores, clock, log } = deps;
  const nowMs = clock.nowMs();
  const retentionMs = Math.max(inputRetentionMs, deps.outputRetentionMs, KEPT.files.forMs);
  const isFirst = elapsedMs === null;
  const isOfCommand = lastSweepMs > 0;
  const { seenMs, hasJumped, pausedUntilMs, servedMs } = await stores.write(async (tx) => {
    const before = (await tx.retentionTime.read()) ?? { seenMs: nowMs, pausedUntilMs: 0, servedMs: 0 };
    const { seenMs, pausedUntilMs } = before;
    const servedMs = isFirst && !isOfCommand ? nowMs : before.servedMs;
    // After such a jump every image could be due at once. The clock may be wrong, or the machine may have been off for a
    // month, and the two cannot be told apart.
    const hasJumped = Math.abs(nowMs - seenMs - (elapsedMs ?? 0)) > retentionMs;
    const now = { seenMs: nowMs, pausedUntilMs: hasJumped ? nowMs + retentionMs : pausedUntilMs, servedMs };
    await tx.retentionTime.write(now);
    return { ...now, seenMs, hasJumped };
  });
  const isPaused = nowMs < pausedUntilMs;
  if (isPaused && (isFirst || hasJumped)) {
    const [last_in_use, paused_until] = [seenMs, pausedUntilMs].map((ms) => new Date(ms).toISOString());
    log.warn(PAUSED, { last_in_use, paused_until });
  }
  // 0 makes only those files due that need no clock: of batches that are `output_deleted` already.
  // A service of its own keeps what it was told to keep, also while it does not run.
  const isForOther = isOfCommand && servedMs > 0;
  const dueMs = isFirst || isPaused || isForOther ? 0 : nowMs;
  // A service that ends with its command never scans twice: the first scan removes what expired as long ago as it was kept.
  const certainMs = ({ forMs }: { forMs: number }) => (isFirst && !isPaused ? nowMs - forMs : dueMs);
  const expiredMs = { answers: certainMs(KEPT.answers), links: certainMs(KEPT.links) };
  await sweepDue(deps, { nowMs, dueMs, inputRetentionMs, expiredMs }, deps.ending);
  if (!deps.presence.isAlone && !deps.ending.aborted) await removeUnknown(deps, ABANDONED_MS);
  // Due by the clocks of two processes: one that is wrong for a time deletes nothing.
  const isKnownLong = nowMs < seenMs || nowMs - seenMs >= everyMs;
  return isFirst && !isForOther && isKnownLong && (hasJumped || !isPaused) ? Math.min(nowMs, seenMs) : 0;
}

async function sweepDue(
  deps: WorkerDeps,
  times: Parameters<typeof sweep>[1],
  ending: AbortSignal,
): Promise<void> {
  const report = await sweep({ ...deps, ending }, times);
  for (const batchId of report.outputsDeleted) {
    deps.feed.publish({ type: "batch", batchId, status: "output_deleted" });
  }
  for (const { batchId: batch, error } of report.failures)
    deps.log.warn("files could not be deleted; trying again later", { batch, error: String(error) });
}

const PAUSED =
  "the clock has jumped by more than the retention; nothing is deleted by time for one retention";
