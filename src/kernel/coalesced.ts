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
