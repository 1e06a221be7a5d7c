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
export function aside(): Promise<void> {
  return new Promise((resolve) => {
    if (waiting.push(resolve) === 1) setImmediate(goOn);
  });
}

function goOn(): void {
  waiting.shift()?.();
  if (waiting.length > 0) setImmediate(goOn);
}
