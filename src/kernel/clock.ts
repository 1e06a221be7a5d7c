import { setTimeout } from "node:timers/promises";

/** Time as the rest of the program sees it; tests replace it. */
export interface Clock {
  /** Milliseconds since 1970, as the wall clock says. For records. */
  nowMs(): number;
  /** Milliseconds since a fixed moment; cannot be set back. Time in which the machine slept may be missing. */
  monotonicMs(): number;
  /** Resolves after `ms`; rejects with the signal's reason when aborted first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** A sleeper notices within this time that the machine itself has slept. Node's timers end at once when they are too long. */
const SLICE_MS = 2_000;

/**
 * The clock of the system. It sleeps by the time of day: a sleep ends on time even when the machine slept meanwhile, which
 * timers do not count. Setting the clock back does not make a sleep longer.
 */
export const systemClock: Clock = {
  nowMs: () => Date.now(),
  // As `performance.now()`, without its module, which every short command would load for it.
  monotonicMs: () => Number(process.hrtime.bigint()) / 1e6,
  sleep: async (ms, signal) => {
    const startMs = Date.now();
    let sleptMs = 0;
    for (let leftMs = ms; ; leftMs = ms - Math.max(sleptMs, Date.now() - startMs)) {
      const sliceMs = Math.max(0, Math.min(leftMs, SLICE_MS));
      await oneTimer(sliceMs, signal);
      sleptMs += sliceMs;
      if (leftMs <= SLICE_MS) return;
    }
  },
};

async function oneTimer(ms: number, signal?: AbortSignal): Promise<void> {
  await setTimeout(ms, undefined, signal && { signal }).catch(() => signal?.throwIfAborted());
}
