import { pollUntilDone } from "../client/poll.ts";
import type { Batch } from "../client/read-batch.ts";
import type { RunEvent } from "../contract/events.ts";
import type { Clock } from "../kernel/clock.ts";
import { formatDuration } from "../kernel/durations.ts";
import type { RunVoice } from "./run-voice.ts";
import type { RunService } from "./service-identity.ts";

export interface AwaitOptions {
  service: RunService;
  clock: Clock;
  random: () => number;
  intervalMs?: number | undefined;
  signal?: AbortSignal | undefined;
  voice: RunVoice;
}

/**
 * Polls until every batch has ended, one after the other, and answers them as they ended.
 * Rules: HTTP-15, CLI-10.
 */
export async function awaitBatches(batches: readonly Batch[], options: AwaitOptions): Promise<Batch[]> {
  const { service, clock, random, intervalMs, signal, voice } = options;
  const states = [...batches];
  const describe = progressText(states, clock);
  const startMs = clock.nowMs();
  for (const [index, batch] of batches.entries()) {
    if (batch.isDone) continue;
    states[index] = await pollUntilDone(batch.id, {
      http: service.http,
      isLocal: service.isLocal,
      isBorrowed: service.isBorrowed,
      clock,
      random,
      intervalMs,
      signal,
      onLook: (look) => {
        if (hasChanged(states[index], look)) voice.event?.(progressEvent(look));
        states[index] = look;
        voice.progress(describe(), startMs);
      },
      onFailure: (error, delayMs) => {
        const { code, message } = error;
        voice.event?.({ event: "retry", code, message, delay_ms: delayMs });
        voice.detail(`${message} Asking again in ${formatDuration(delayMs)}.`);
      },
    });
  }
  return states;
}

/** Whether a look at a batch shows another state than the look before. */
export function hasChanged(before: Batch | undefined, now: Batch): boolean {
  return (
    before === undefined ||
    before.status !== now.status ||
    before.successCount !== now.successCount ||
    before.failCount !== now.failCount
  );
}

export function progressEvent(batch: Batch): RunEvent {
  return {
    event: "progress",
    batch_id: batch.id,
    item_count: batch.itemCount,
    status: batch.status,
    success_count: batch.successCount,
    fail_count: batch.failCount,
  };
}

/** `12/200 images, 0 failed, 3.4/s, running`, over all batches; the rate is what was made since the first look. */
function progressText(states: readonly Batch[], clock: Clock): () => string {
  let first: { doneCount: number; atMs: number } | null = null;
  return () => {
    const sum = (value: (batch: Batch) => number) => states.reduce((total, batch) => total + value(batch), 0);
    const successCount = sum((batch) => batch.successCount);
    const failCount = sum((batch) => batch.failCount);
    const doneCount = successCount + failCount;
    first ??= { doneCount, atMs: clock.nowMs() };
    const seconds = (clock.nowMs() - first.atMs) / 1000;
    const rate = seconds > 0 ? (doneCount - first.doneCount) / seconds : 0;
    const current = states.find((batch) => !batch.isDone);
    const parts = [
      ...(states.every((batch) => batch.hasCounts)
        ? [`${successCount}/${sum((batch) => batch.itemCount ?? 0)} images`, `${failCount} failed`]
        : []),
      ...(rate > 0 ? [`${rate.toFixed(1)}/s`] : []),
      ...(current === undefined ? [] : [current.status.replaceAll("_", " ")]),
    ];
    return parts.join(", ") || "ended";
  };
}
