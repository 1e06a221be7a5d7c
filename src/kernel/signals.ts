import { AsyncLocalStorage } from "node:async_hooks";
import { setMaxListeners } from "node:events";

interface LinkedSignal {
  signal: AbortSignal;
  /** Removes all listeners from the sources. Call it when the signal is not needed any more. */
  unlink(): void;
}

/**
 * Makes a signal that aborts with the first of its sources, for the same reason. Use it where many signals are made from
 * one long-lived source: `AbortSignal.any` leaves something in that source for each of them.
 */
export function linkSignals(...sources: readonly AbortSignal[]): LinkedSignal {
  const linked = new AbortController();
  const onAbort = (event: Event) => linked.abort((event.target as AbortSignal).reason);
  // A source may have any number of listeners at once; all are removed again.
  setMaxListeners(0, ...sources);
  for (const source of sources) source.addEventListener("abort", onAbort, { once: true });
  const aborted = sources.find((source) => source.aborted);
  if (aborted) linked.abort(aborted.reason);
  return {
    signal: linked.signal,
    unlink: () => {
      for (const source of sources) source.removeEventListener("abort", onAbort);
    },
  };
}

/** Settles as the work does, or rejects with the signal's reason as soon as it is aborted. The work itself goes on. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

/** What ends the work in whose course an event happens. */
const ends = new AsyncLocalStorage<(error: unknown) => void>();

/** Runs work that `end` ends when an error is thrown in its course that nothing catches: see `endItsWork`. */
export function withEnd<T>(end: (error: unknown) => void, work: () => T): T {
  return ends.run(end, work);
}

/**
 * Ends the work that an uncaught error belongs to, such as a request: what one upstream answers must end no other request.
 * Call it while the error is handled. Returns false for an error that belongs to none.
 */
export function endItsWork(error: unknown): boolean {
  const end = ends.getStore();
  end?.(error);
  return end !== undefined;
}
