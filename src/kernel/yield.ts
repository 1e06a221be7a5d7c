const BYTES_PER_TURN = 1024 * 1024;

/**
 * For long work on the main thread: the function that it answers is told of every piece of work, and lets everything
 * else have a turn after each MiB.
 */
export function createYield(): (bytes: number) => Promise<void> {
  let sinceTurn = 0;
  return async (bytes) => {
    sinceTurn += bytes;
    if (sinceTurn < BYTES_PER_TURN) return;
    sinceTurn = 0;
    await new Promise<void>((resolve) => setImmediate(resolve));
  };
}
