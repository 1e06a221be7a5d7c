import { useEffect, useRef, useState } from "react";
import type { ItemObject } from "../../../contract/batch-api.ts";
import { listItems } from "../../api/batches.ts";
import { onChange } from "../../api/changes.ts";
import { sleep } from "../../api/request.ts";

export interface Items {
  /** In request order, as far as they are read. */
  items: ItemObject[];
  /** All are read. */
  isComplete: boolean;
  error: Error | null;
  /** Reads all of them again. */
  reload: () => void;
}

interface Page {
  cursor: string | null;
  items: ItemObject[];
}

/** Pages are read again after a change at most this often. */
const LEAST_GAP_MS = 900;
const NOTHING = { items: [] as ItemObject[], isComplete: false, error: null as Error | null };

/** The items of a batch, page by page. After a change only the pages that it touches are read again. */
export function useItems(batchId: string): Items {
  const [state, setState] = useState(NOTHING);
  const again = useRef(() => {});
  useEffect(() => {
    const stop = new AbortController();
    const pages: Page[] = [{ cursor: null, items: [] }];
    const stale = new Set([0]);
    let isComplete = false;
    let isReading = false;

    const readPage = async (index: number) => {
      const page = pages[index];
      if (!page) return;
      const { data, has_more, next_cursor } = await listItems(batchId, page.cursor, stop.signal);
      pages[index] = { ...page, items: data };
      const isLast = index === pages.length - 1;
      if (isLast && has_more) {
        pages.push({ cursor: next_cursor, items: [] });
        stale.add(index + 1);
      }
      if (isLast) isComplete = !has_more;
    };
    const readStale = async () => {
      if (isReading) return;
      isReading = true;
      while (stale.size > 0 && !stop.signal.aborted) {
        const wasComplete = isComplete;
        const round = [...stale];
        stale.clear();
        let error: Error | null = null;
        try {
          for (const index of round) await readPage(index);
        } catch (thrown) {
          error = thrown as Error;
        }
        if (stop.signal.aborted) return;
        setState((old) => ({
          items: error ? old.items : pages.flatMap(({ items }) => items),
          isComplete,
          error,
        }));
        if (wasComplete || error) await sleep(LEAST_GAP_MS, stop.signal).catch(() => {});
      }
      isReading = false;
    };
    again.current = () => {
      for (const index of pages.keys()) stale.add(index);
      void readStale();
    };
    void readStale();
    const unsubscribe = onChange((change) => {
      if (change.kind !== "all" && !(change.kind === "batch" && change.id === batchId)) return;
      for (const index of changedPages(pages, change.kind === "all" ? null : change.items)) stale.add(index);
      void readStale();
    });
    return () => {
      stop.abort();
      unsubscribe();
    };
  }, [batchId]);
  return { ...state, reload: () => again.current() };
}

/** The pages with changed items. Null: any that is not finished. New items come at the end. */
function changedPages(pages: readonly Page[], changed: string[] | null): number[] {
  const last = pages.length - 1;
  const ids = changed === null ? null : new Set(changed);
  if (ids?.size === 0) return [];
  const isTouched = ({ items }: Page) =>
    items.some(({ custom_id, status }) => (ids === null ? status === "pending" : ids.has(custom_id)));
  const touched = [...pages.keys()].filter((index) => isTouched(pages[index] as Page));
  if (ids === null) return [...new Set([...touched, last])];
  return touched.length === 0 ? [last] : touched;
}
