/** Time as the rest of the program sees it; tests replace it. */
export interface Clock {
  /** Milliseconds since 1970, as the wall clock says. For records. */
  nowMs(): number;
  /** Milliseconds since some moment, which nobody can set. Time in which the machine slept may be missing. */
  monotonicMs(): number;
  /** Resolves after `ms`; rejects with the signal's reason when aborted first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** Timers of a longer time would end at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  sleep: async (ms, signal) => {
    for (let leftMs = ms; leftMs > MAX_TIMER_MS; leftMs -= MAX_TIMER_MS) await oneTimer(MAX_TIMER_MS, signal);
    await oneTimer(ms % MAX_TIMER_MS, signal);
  },
};

/** After a wake-up of the machine, a sleeper sees within this time how late it is. */
const SLICE_MS = 2_000;

/**
 * The clock of people: a sleep is over at its time of day, also when the machine itself slept in between, which timers
 * do not count. A clock that is set back does not make it longer.
 */
export const wallClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
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

function oneTimer(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}
