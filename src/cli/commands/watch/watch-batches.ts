import { setMaxListeners } from "node:events";
import type { Batch } from "../../../client/batch.ts";
import { followChanges, PollLimiter, pollUntilDone } from "../../../client/poll.ts";
import type { Clock } from "../../../kernel/clock.ts";
import type { RunService } from "../../../runs/directory/service-identity.ts";
import { hasChanged, outageText, parkedError, progressEvent } from "../../../runs/wait.ts";
import type { Output } from "../../command-line/command-context.ts";

/** Shows batches while they run: as lines in a log, or as a dashboard on a terminal. */
export interface WatchView {
  /** Called with all batches each time one of them was read. */
  show(batches: readonly Batch[]): void;
  /** Called with a description of each failure that is being waited out. */
  trouble(text: string): void;
  /** The end: every batch has ended, or the command was stopped. */
  close(): void;
}

export interface WatchOptions {
  service: RunService;
  clock: Clock;
  intervalMs: number | undefined;
  signal: AbortSignal;
  view: WatchView;
  output: Output;
}

/** Polls all batches at the same time until every one has ended, and returns them. Throws like `parkedError`. */
export async function watchBatches(batches: readonly Batch[], options: WatchOptions): Promise<Batch[]> {
  const { service, clock, intervalMs, view, output } = options;
  const { http, isLocal, isBorrowed } = service;
  const states = [...batches];
  // When one fails, polling the others stops too.
  const failed = new AbortController();
  const signal = AbortSignal.any([options.signal, failed.signal]);
  // Each batch adds one or two listeners, and there may be thousands of batches.
  setMaxListeners(0, signal);
  view.show(states);
  const isOne = batches.filter((batch) => !batch.isDone).length < 2;
  const shared = isOne ? {} : { limiter: new PollLimiter(clock, intervalMs === undefined ? undefined : 0) };
  const changes = followChanges(service, clock, intervalMs);
  const watchOne = async (batch: Batch, index: number): Promise<Batch> => {
    if (batch.isDone) return batch;
    try {
      return await pollUntilDone(batch.id, {
        http,
        isLocal,
        isBorrowed,
        clock,
        intervalMs,
        signal,
        changes,
        ...shared,
        random: Math.random,
        onLook: (look) => {
          if (hasChanged(states[index], look)) output.event(progressEvent(look));
          states[index] = look;
          view.show(states);
          const parked = parkedError(states, service, clock.nowMs());
          if (parked !== null) failed.abort(parked);
        },
        onFailure: (error, delay_ms, untilMs) => {
          const { code, message } = error;
          output.event({ event: "retry", code, message, delay_ms });
          view.trouble(outageText(error, untilMs));
        },
      });
    } catch (error) {
      failed.abort(error);
      throw error;
    }
  };
  try {
    return await Promise.all(batches.map(watchOne));
  } finally {
    changes?.stop();
    view.close();
  }
}
