import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { BatchObject, ItemObject } from "../../../contract/batch-api.ts";
import { routes } from "../../../contract/routes.ts";
import { listItems } from "../../api/batches.ts";
import { onChange } from "../../api/changes.ts";
import { fetchJson, sleep } from "../../api/request.ts";
import { useData } from "../../parts/use-data.ts";

/** An item with the batch that makes it: the first one, or that of a retry. */
export interface PlacedItem extends ItemObject {
  /** Names it on the page: its custom id, with the number of its batch before it where there are several. */
  key: string;
  batch: BatchObject;
  /** In that batch, from 0. */
  position: number;
}

/** Some batches, each with its retries, kept up to date. Null before all are known. */
export function useBatches(ids: readonly string[]) {
  const known = useRef(new Map<string, BatchObject>());
  const stale = useRef(new Set<string>());
  const seen = useRef(new Set<string>());
  return useData(
    ids.join(" "),
    async (signal) => {
      const wanted = ids.filter((id) => stale.current.size === 0 || stale.current.has(id));
      stale.current = new Set();
      try {
        const read = await Promise.all(
          wanted.map((id) => fetchJson<BatchObject>(`${routes.batch(id)}?include=retries`, { signal })),
        );
        for (const batch of read) known.current.set(batch.id, batch);
      } catch (error) {
        for (const id of wanted) stale.current.add(id);
        throw error;
      }
      const batches = ids.flatMap((id) => known.current.get(id) ?? []);
      for (const { id } of batches.flatMap(membersOf)) seen.current.add(id);
      return batches;
    },
    (change) => {
      if (change.kind !== "batch" && change.kind !== "deleted") return false;
      const touched = [...known.current.values()].filter((batch) =>
        membersOf(batch).some(({ id }) => id === change.id),
      );
      // A batch that nobody has seen may be a retry of any of these.
      const isNew = touched.length === 0 && !seen.current.has(change.id);
      seen.current.add(change.id);
      for (const id of isNew ? ids : touched.map((batch) => batch.id)) stale.current.add(id);
      return isNew || touched.length > 0;
    },
  );
}

/** A batch and its retries, oldest first. */
export function membersOf(batch: BatchObject): BatchObject[] {
  return [batch, ...(batch.retries ?? [])];
}

interface Items {
  /** In request order, as far as they are read. An image that was made again is there once. */
  items: PlacedItem[];
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

interface BatchItems {
  items: readonly ItemObject[];
  isComplete: boolean;
  error: Error | null;
}

interface Follower {
  stop: () => void;
  reload: () => void;
}

/** The items of some batches and of their retries. */
export function useItems(batches: readonly BatchObject[]): Items {
  const [lists, setLists] = useState<ReadonlyMap<string, BatchItems>>(new Map());
  const followers = useRef(new Map<string, Follower>());
  const ids = batches
    .flatMap(membersOf)
    .map(({ id }) => id)
    .join(" ");
  useEffect(() => {
    const wanted = new Set(ids.split(" ").filter((id) => id !== ""));
    for (const [id, { stop }] of followers.current) {
      if (wanted.has(id)) continue;
      stop();
      followers.current.delete(id);
    }
    for (const id of wanted) {
      if (followers.current.has(id)) continue;
      const keep = (list: BatchItems) => setLists((old) => new Map(old).set(id, list));
      followers.current.set(id, followItems(id, keep));
    }
  }, [ids]);
  useEffect(
    () => () => {
      for (const { stop } of followers.current.values()) stop();
      followers.current.clear();
    },
    [],
  );
  const items = useMemo(() => placeItems(batches, lists), [batches, lists]);
  const own = ids.split(" ").map((id) => lists.get(id));
  const reload = useCallback(() => {
    for (const follower of followers.current.values()) follower.reload();
  }, []);
  return {
    items,
    isComplete: own.every((list) => list?.isComplete),
    error: own.find((list) => list?.error)?.error ?? null,
    reload,
  };
}

function placeItems(batches: readonly BatchObject[], lists: ReadonlyMap<string, BatchItems>): PlacedItem[] {
  return batches.flatMap((first, index) => {
    const placed = new Map<string, PlacedItem>();
    for (const batch of membersOf(first)) {
      for (const [position, item] of (lists.get(batch.id)?.items ?? []).entries()) {
        const old = placed.get(item.custom_id);
        if (old && old.status !== "failed" && item.status !== "success") continue;
        const key = batches.length === 1 ? item.custom_id : `${index + 1}/${item.custom_id}`;
        placed.set(item.custom_id, { ...item, key, batch, position });
      }
    }
    return [...placed.values()];
  });
}

/** Pages are read again after a change at most this often. */
const LEAST_GAP_MS = 900;

/** Reads the items of a batch page by page. After a change only the pages that it touches are read again. */
function followItems(batchId: string, onItems: (list: BatchItems) => void): Follower {
  const stop = new AbortController();
  const pages: Page[] = [{ cursor: null, items: [] }];
  const stale = new Set([0]);
  let isComplete = false;
  let isReading = false;
  let read: readonly ItemObject[] = [];

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
        read = pages.flatMap(({ items }) => items);
      } catch (thrown) {
        error = thrown as Error;
      }
      if (stop.signal.aborted) return;
      onItems({ items: read, isComplete, error });
      if (wasComplete || error) await sleep(LEAST_GAP_MS, stop.signal).catch(() => {});
    }
    isReading = false;
  };
  void readStale();
  const unsubscribe = onChange((change) => {
    if (change.kind !== "all" && !(change.kind === "batch" && change.id === batchId)) return;
    for (const index of changedPages(pages, change.kind === "all" ? null : change.items)) stale.add(index);
    void readStale();
  });
  return {
    stop: () => {
      stop.abort();
      unsubscribe();
    },
    reload: () => {
      for (const index of pages.keys()) stale.add(index);
      void readStale();
    },
  };
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
