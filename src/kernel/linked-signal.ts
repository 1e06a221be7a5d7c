import { setMaxListeners } from "node:events";

export interface LinkedSignal {
  signal: AbortSignal;
  /** To be called when the signal is not needed any more: nothing of it stays with its sources. */
  unlink(): void;
}

/**
 * Aborted with the reason of the first source that is. For what is made again and again from a source that lives on:
 * `AbortSignal.any` leaves something in such a source for each signal that it makes.
 */
export function linkSignals(...sources: readonly AbortSignal[]): LinkedSignal {
  const linked = new AbortController();
  const onAbort = (event: Event) => linked.abort((event.target as AbortSignal).reason);
  // As many as there are at once: all of them go.
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
