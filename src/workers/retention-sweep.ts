import { FILE_RETENTION_MS, sweepFiles } from "../domain/files/files.ts";
import { LINK_RETENTION_MS, sweepLinkedImages } from "../domain/files/linked-images.ts";
import { ANSWER_RETENTION_MS, sweepAnswers } from "../domain/realtime/answers.ts";
import type { RetentionTime } from "../domain/records.ts";
import { lookAtClock, sweep } from "../domain/retention.ts";
import type { WorkerDeps } from "./deps.ts";
import { removeUnknown } from "./recovery.ts";

/** A larger difference between the wall clock and the passed time means that the clock was set, or the machine slept. */
const CLOCK_JUMP_MS = 60_000;

/** No request takes this long from the storing of its files to its acceptance. */
const ABANDONED_MS = 3_600_000;

interface RetentionOptions {
  inputRetentionMs: number;
  /** Time between two sweeps. */
  everyMs: number;
}

/**
 * Checks the clock at once and then after each pause. Returns the function that stops it. A sweep deletes by time
 * only when two checks, one pause apart, agree with the time that has really passed. The first check after a start or
 * after a jump deletes only the files of batches that are `output_deleted` already. Only one of several processes
 * sweeps. See `lookAtClock` for jumps that are longer than the retention.
 */
export function startRetention(deps: WorkerDeps, options: RetentionOptions): () => Promise<void> {
  const { clock, log } = deps;
  const stopping = new AbortController();
  const loop = async () => {
    let lookedAtMs: number | null = null;
    while (!stopping.signal.aborted) {
      try {
        const { isFirst } = deps.presence;
        const thisLookMs = clock.monotonicMs();
        if (isFirst) await lookAndSweep(deps, options, lookedAtMs === null ? null : thisLookMs - lookedAtMs);
        lookedAtMs = isFirst ? thisLookMs : null;
        await deps.uploads.endIdle();
      } catch (error) {
        log.error("the retention sweep failed; trying again later", { error: String(error) });
      }
      await clock.sleep(options.everyMs, stopping.signal).catch(() => {});
    }
  };
  const running = loop();
  return async () => {
    stopping.abort();
    await running;
  };
}

/** `elapsedMs` is the time since the last check, and null for the first one. */
async function lookAndSweep(
  deps: WorkerDeps,
  { inputRetentionMs }: RetentionOptions,
  elapsedMs: number | null,
): Promise<void> {
  const { stores, clock, log, feed } = deps;
  const nowMs = clock.nowMs();
  const retentionMs = Math.max(inputRetentionMs, deps.outputRetentionMs, FILE_RETENTION_MS);
  const { before, now } = await stores.write(async (tx) => {
    const before = (await tx.retentionTime.read()) ?? {
      seenMs: (await tx.batches.lastEventMs()) ?? nowMs,
      aheadMs: 0,
      jumpedAtMs: 0,
    };
    const now = lookAtClock(before, { nowMs, elapsedMs: elapsedMs ?? 0 }, retentionMs);
    await tx.retentionTime.write(now);
    return { before, now };
  });
  const isSteady = elapsedMs !== null && Math.abs(nowMs - before.seenMs - elapsedMs) < CLOCK_JUMP_MS;
  if (elapsedMs !== null && !isSteady) {
    log.warn("the clock has jumped; nothing is deleted until the next sweep");
  }
  if (now.aheadMs > 0 && !isSteady) log.warn(FAR_AHEAD, factsOf(before, now, retentionMs));
  if (now.aheadMs === 0 && before.aheadMs > 0) log.info("retention goes by the clock again");
  // 0 makes only those files due that need no clock: of batches that are `output_deleted` already.
  const dueMs = isSteady ? nowMs - now.aheadMs : 0;
  const report = await sweep(deps, { nowMs, dueMs, inputRetentionMs });
  for (const batchId of report.outputsDeleted) {
    feed.publish({ type: "batch", batchId, status: "output_deleted" });
  }
  for (const { batchId, error } of report.failures) {
    log.warn("files could not be deleted; trying again later", { batch: batchId, error: String(error) });
  }
  for (const error of await sweepFiles(deps, dueMs)) {
    log.warn("an uploaded file could not be deleted; trying again later", { error: String(error) });
  }
  // A service that ends with its command never looks twice: the first look removes what expired as long ago as it was kept.
  const certainMs = (keptMs: number) => (isSteady ? dueMs : nowMs - now.aheadMs - keptMs);
  for (const error of await sweepAnswers(deps, certainMs(ANSWER_RETENTION_MS))) {
    log.warn("an answer could not be deleted; the next start tries again", { error: String(error) });
  }
  for (const error of await sweepLinkedImages(deps, certainMs(LINK_RETENTION_MS))) {
    log.warn("an image that had a link could not be deleted; trying again later", { error: String(error) });
  }
  if (!deps.presence.isAlone && !deps.ending.aborted) await removeUnknown(deps, ABANDONED_MS);
}

const FAR_AHEAD =
  "the clock is far ahead of when this data was last in use; nothing is deleted that is due only by that";

function factsOf(before: RetentionTime, now: RetentionTime, retentionMs: number): Record<string, unknown> {
  const hours = (ms: number) => Math.round(ms / 3_600_000);
  return {
    clock: new Date(now.seenMs).toISOString(),
    last_in_use: new Date(before.seenMs).toISOString(),
    hours_ahead: hours(now.aheadMs),
    hours_until_believed: hours(now.jumpedAtMs + retentionMs - now.seenMs),
  };
}
