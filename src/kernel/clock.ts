/** Time as the rest of the program sees it; tests replace it. */
export interface Clock {
  /** Milliseconds since 1970, as the wall clock says. For records. */
  nowMs(): number;
  /** Resolves after `ms`; rejects with the signal's reason when aborted first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** Timers of a longer time would end at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  nowMs: () => Date.now(),
  sleep: async (ms, signal) => {
    for (let leftMs = ms; leftMs > MAX_TIMER_MS; leftMs -= MAX_TIMER_MS) await oneTimer(MAX_TIMER_MS, signal);
    await oneTimer(ms % MAX_TIMER_MS, signal);
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
