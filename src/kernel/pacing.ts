const BYTES_BETWEEN_PAUSES = 1024 * 1024;

/**
 * For long work on the main thread. The returned function takes the amount of work done since its last call (default 1).
 * After every `between` of it, the function lets the event loop serve others before it resolves. `between` is in bytes,
 * default 1 MiB, or in whatever unit the caller counts.
 */
export function createYield(between = BYTES_BETWEEN_PAUSES): (amount?: number) => Promise<void> {
  let since = 0;
  return async (amount = 1) => {
    since += amount;
    if (since < between) return;
    since = 0;
    await new Promise<void>((resolve) => setImmediate(resolve));
  };
}

const waiting: (() => void)[] = [];

/**
 * Lets everything that the event loop has ready go first. Those that wait go on in their order, one in each turn of the
 * loop: work that nobody waits for, in pieces, then holds up no request by more than one piece.
 */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => {
    if (waiting.push(resolve) === 1) setImmediate(goOn);
  });
}

function goOn(): void {
  waiting.shift()?.();
  if (waiting.length > 0) setImmediate(goOn);
}

/**
 * Returns a function that runs the work, one run at a time. A call during a run leads to one more run after it, because
 * the run may have missed the reason for the call. The promise resolves when no run is left. The work must not reject.
 */
export function coalesced(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | null = null;
  let again = false;
  const run = async () => {
    while (again) {
      again = false;
      await work();
    }
    running = null;
  };
  return () => {
    again = true;
    running ??= run();
    return running;
  };
}

interface BackoffPolicy {
  /** Ceiling of the first delay, in ms; it doubles with each attempt. */
  baseMs: number;
  /** No delay is longer. */
  capMs: number;
}

/** Returns the delay before retry number `attempt` (1 for the first retry), in ms, with full jitter. */
export function backoffMs(attempt: number, policy: BackoffPolicy, random: () => number): number {
  const ceiling = Math.min(policy.capMs, policy.baseMs * 2 ** (attempt - 1));
  return Math.round(random() * ceiling);
}
