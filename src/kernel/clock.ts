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

/** The engine would make an error with a stack for each limit that is stopped in time. */
const IN_TIME = "in time";

/**
 * Calls `onOver` after `ms`, unless it is stopped before. Setting the clock forward does not end it early: a request to an
 * upstream that is cut off may be paid, and is sent again.
 */
export function callAfter(clock: Clock, ms: number, onOver: () => void): { stop(): void } {
  const stopped = new AbortController();
  const startMs = clock.monotonicMs();
  const sleep = async () => {
    for (let leftMs = ms; leftMs > 0; leftMs = ms - (clock.monotonicMs() - startMs))
      await clock.sleep(leftMs, stopped.signal);
  };
  sleep().then(onOver, () => {});
  return { stop: () => stopped.abort(IN_TIME) };
}

function oneTimer(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    if (signal?.aborted) onAbort();
    else signal?.addEventListener("abort", onAbort, { once: true });
  });
}
