import { useCallback, useEffect, useRef, useState } from "react";
import { type Change, onChange } from "../live/changes.ts";

export interface Data<T> {
  /** The last answer; null before the first one. */
  value: T | null;
  /** The problem of the last attempt; null when it went well. */
  error: Error | null;
  /** Reads again, now or when the reading that runs has ended. */
  reload: () => void;
}

/** A reading is not repeated before this time has passed. */
const LEAST_GAP_MS = 900;

/**
 * Reads data, and again after every change that `concerns` it. An earlier answer stays until the next one is there. `key` names
 * the data: another key begins anew. Another `extent`, such as the number of pages, reads again.
 */
export function useData<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  concerns: (change: Change) => boolean = () => false,
  extent = 1,
): Data<T> {
  const [state, setState] = useState<{ key: string; value: T | null; error: Error | null }>({
    key,
    value: null,
    error: null,
  });
  const latest = useRef({ load, concerns });
  latest.current = { load, concerns };
  const again = useRef(() => {});

  useEffect(() => {
    const stop = new AbortController();
    let isLoading = false;
    let isWanted = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const run = async () => {
      isLoading = true;
      isWanted = false;
      try {
        const value = await latest.current.load(stop.signal);
        if (!stop.signal.aborted) setState({ key, value, error: null });
      } catch (thrown) {
        const error = thrown instanceof Error ? thrown : new Error(String(thrown));
        if (!stop.signal.aborted)
          setState((old) => ({ key, value: old.key === key ? old.value : null, error }));
      }
      if (stop.signal.aborted) return;
      timer = setTimeout(() => {
        isLoading = false;
        if (isWanted) void run();
      }, LEAST_GAP_MS);
    };
    again.current = () => {
      isWanted = true;
      if (!isLoading) void run();
    };
    void run();
    const unsubscribe = onChange((change) => {
      if (change.kind === "all" || latest.current.concerns(change)) again.current();
    });
    return () => {
      stop.abort();
      clearTimeout(timer);
      unsubscribe();
    };
  }, [key]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the extent is what `load` reads.
  useEffect(() => again.current(), [extent]);

  const reload = useCallback(() => again.current(), []);
  // An answer under another key belongs to what was shown before.
  return {
    value: state.key === key ? state.value : null,
    error: state.key === key ? state.error : null,
    reload,
  };
}
