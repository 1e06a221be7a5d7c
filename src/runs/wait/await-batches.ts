import { setMaxListeners } from "node:events";
import { followChanges } from "../../client/changes.ts";
import { pollUntilDone } from "../../client/poll.ts";
import { PollLimiter } from "../../client/poll-limiter.ts";
import type { Batch } from "../../client/wire/read-batch.ts";
import type { RunEvent } from "../../contract/events.ts";
import { saidLines } from "../../contract/waiting.ts";
import type { Clock } from "../../kernel/clock.ts";
import { formatDuration } from "../../kernel/durations.ts";
import type { RunService } from "../directory/service-identity.ts";
import type { RunReporter } from "../reporter.ts";
import { parkedError } from "./parked.ts";
import { outageText, progressOf } from "./progress.ts";

export interface AwaitOptions {
  service: RunService;
  clock: Clock;
  random: () => number;
  intervalMs?: number | undefined;
  signal?: AbortSignal | undefined;
  reporter: RunReporter;
  /** The batches, by id, that make images of the others again. */
  retries?: ReadonlySet<string>;
  /** How many images of a batch, by its id, the run does not ask for any more. Default: none. */
  superseded?: ReadonlyMap<string, number>;
}

/**
 * Polls until every batch has ended, and returns the ended batches. Each batch has its own schedule, which counts from
 * its creation. Progress covers all batches. If one can no longer be polled, all polling stops. Throws like
 * `parkedError`.
 */
export async function awaitBatches(batches: readonly Batch[], options: AwaitOptions): Promise<Batch[]> {
  const { service, clock, random, intervalMs, reporter } = options;
  const states = [...batches];
  const progress = progressOf(states, clock, options);
  const startMs = clock.nowMs();
  const failed = new AbortController();
  const signal =
    options.signal === undefined ? failed.signal : AbortSignal.any([options.signal, failed.signal]);
  // Each batch has a listener or two, and there may be very many.
  setMaxListeners(0, signal);
  const isOne = batches.filter((batch) => !batch.isDone).length < 2;
  const changes = followChanges(service, clock, intervalMs);
  const limiter = new PollLimiter(clock, intervalMs === undefined ? undefined : 0);
  let lastSaid: string | null = null;
  const awaitOne = async (batch: Batch, index: number) => {
    if (batch.isDone) return;
    try {
      await pollUntilDone(batch.id, {
        http: service.http,
        isLocal: service.isLocal,
        isBorrowed: service.isBorrowed,
        clock,
        random,
        intervalMs,
        sinceMs: batch.createdAtMs,
        changes,
        ...(isOne ? {} : { limiter }),
        signal,
        onLook: (look) => {
          if (hasChanged(states[index], look)) reporter.event?.(progressEvent(look));
          const said = look.waiting?.said ?? lastSaid;
          if (said !== lastSaid) for (const line of saidLines(said)) reporter.note(line);
          lastSaid = said;
          states[index] = look;
          reporter.progress(progress(), startMs);
          const parked = parkedError(states, service, clock.nowMs());
          if (parked !== null) failed.abort(parked);
        },
        onFailure: (error, delayMs, untilMs) => {
          const { code, message } = error;
          reporter.event?.({ event: "retry", code, message, delay_ms: delayMs });
          reporter.detail(`${message.replace(/\.?$/, ".")} Asking again in ${formatDuration(delayMs)}.`);
          reporter.progress(outageText(error, untilMs), startMs);
        },
      });
    } catch (error) {
      failed.abort(error);
      throw error;
    }
  };
  // The first failure is thrown after all polling has ended.
  const ends = await Promise.allSettled(batches.map(awaitOne));
  changes?.stop();
  options.signal?.throwIfAborted();
  if (failed.signal.aborted) throw failed.signal.reason;
  for (const end of ends) if (end.status === "rejected") throw end.reason;
  return states;
}

/** Whether a look at a batch shows another state than the look before. */
export function hasChanged(before: Batch | undefined, now: Batch): boolean {
  return (
    before === undefined ||
    before.status !== now.status ||
    before.successCount !== now.successCount ||
    before.failCount !== now.failCount ||
    before.waiting?.code !== now.waiting?.code ||
    before.waiting?.untilMs !== now.waiting?.untilMs
  );
}

export function progressEvent(batch: Batch): RunEvent {
  const { waiting } = batch;
  return {
    event: "progress",
    batch_id: batch.id,
    item_count: batch.itemCount,
    status: batch.status,
    success_count: batch.successCount,
    fail_count: batch.failCount,
    waiting: waiting && {
      code: waiting.code,
      message: waiting.message,
      until: waiting.untilMs === null ? null : new Date(waiting.untilMs).toISOString(),
    },
  };
}
