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
