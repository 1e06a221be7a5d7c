import { createContext, useCallback, useContext, useEffect, useMemo, useRef, useState } from "react";
import type { AccountObject } from "../../contract/console-api.ts";
import { DEFAULT_LIMITS, type Limits } from "../../contract/limits.ts";
import { type Change, onChange } from "../api/changes.ts";

interface Data<T> {
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
 * Reads data, and again after every change that `concerns` it (default: none). An earlier answer stays until the next one is there. `key` names
 * the data: another key begins anew. Another `extent`, such as the number of pages, reads again.
 */
export function useData<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  concerns?: (change: Change) => boolean,
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
      const concern = latest.current.concerns;
      if (concern && (change.kind === "all" || concern(change))) again.current();
    });
    return () => {
      stop.abort();
      clearTimeout(timer);
      unsubscribe();
    };
  }, [key]);

  const readExtent = useRef(extent);
  useEffect(() => {
    if (readExtent.current === extent) return;
    readExtent.current = extent;
    again.current();
  }, [extent]);

  const reload = useCallback(() => again.current(), []);
  // An answer under another key belongs to what was shown before.
  return {
    value: state.key === key ? state.value : null,
    error: state.key === key ? state.error : null,
    reload,
  };
}

export const AccountContext = createContext<Data<AccountObject> | null>(null);

/** The account of the key, kept up to date; null before it is known. */
export function useAccount(): AccountObject | null {
  return useContext(AccountContext)?.value ?? null;
}

/** The limits of the service; the default ones before they are known. */
export function useLimits(): Limits {
  const limits = JSON.stringify(useAccount()?.limits ?? null);
  return useMemo(() => limitsOf(JSON.parse(limits)), [limits]);
}

function limitsOf(limits: AccountObject["limits"] | null): Limits {
  if (limits === null) return DEFAULT_LIMITS;
  return {
    ...DEFAULT_LIMITS,
    itemsPerBatch: limits.items_per_batch,
    outputImagesPerBatch: limits.output_images_per_batch,
    outputCountPerItem: limits.output_count_per_item,
    promptChars: limits.prompt_chars,
    referenceImageBytes: limits.reference_image_bytes,
    referenceImagesPerBatch: limits.reference_images_per_batch,
    referenceBytesPerBatch: limits.reference_bytes_per_batch,
    createBodyBytes: limits.create_body_bytes,
    zipItems: limits.zip_items,
  };
}
