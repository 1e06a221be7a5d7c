import { type CSSProperties, useEffect, useRef, useState } from "react";
import type { ItemThumbnail, ListEnvelope } from "../../contract/batch-api.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { routes } from "../../contract/routes.ts";
import { fetchJson, send } from "../api/request.ts";
import { Icon } from "./notes.tsx";

/** Small pictures of items that follow each other, which one request brings. */
interface Sheet {
  batchId: string;
  path: string;
}

/** The sheet with the picture of the item at a position of its batch. */
export function sheetAt(batchId: string, position: number): Sheet {
  const start = position - (position % FIXED_LIMITS.thumbnailPageMax);
  return { batchId, path: `${routes.thumbnails(batchId)}?cursor=${start}` };
}

/** The path of the first image of an item, made small for a square of `edgePx` pixels. */
export function thumbnailPath(batchId: string, customId: string, edgePx: 256 | 1024): string {
  return `${routes.thumbnail(batchId, customId)}?width=${edgePx}`;
}

interface Picture {
  /** An object URL or a data URL; null until the bytes are there. */
  url: string | null;
  error: Error | null;
}

interface Entry extends Picture {
  path: string;
  holders: Set<(picture: Picture) => void>;
  /** Ends the fetch that runs or waits. */
  stop: AbortController | null;
  /** The number of its burst while it waits for its turn; null otherwise. */
  burst: number | null;
  /** The request that may bring it with others; null when there is none, or it came without it. */
  sheet: Sheet | null;
}

/** Browsers open six connections to a service. The rest of the page needs one of them. */
const MOST_FETCHES = 5;
/** A sheet is fetched when at least this many of its pictures are wanted. */
const LEAST_OF_SHEET = 4;
/** Pictures that are kept though nothing shows them. */
const MOST_KEPT = 400;
/**
 * The time between two updates of the page, each with all new pictures: drawing a large window for each picture takes
 * longer than fetching it.
 */
const TELL_GAP_MS = 100;

/**
 * The pictures of the page, by path: fetched with the session's token, few at once. Those that are asked for at one time (a
 * burst) come in their order, and before those of earlier bursts. A picture that is no longer shown is not fetched, and its
 * memory is freed after a while.
 */
class Pictures {
  /** In the order in which they were last asked for. */
  readonly #entries = new Map<string, Entry>();
  #burst = 0;
  #isBurst = false;
  #running = 0;
  /** The pictures that arrived since the last update. */
  readonly #arrived = new Set<Entry>();
  /** Ends the sheets that are fetched. */
  #stopSheets = new AbortController();

  /**
   * Shows a picture, which a `sheet` may have, too: `onChange` is called when it is there or has failed. Returns the function
   * that gives it up.
   */
  hold(path: string, sheet: Sheet | null, onChange: (picture: Picture) => void): () => void {
    const entry = this.#entries.get(path) ?? newEntry(path);
    this.#entries.delete(path);
    this.#entries.set(path, entry);
    entry.holders.add(onChange);
    if (entry.url !== null) onChange({ url: entry.url, error: null });
    else if (entry.stop === null) {
      Object.assign(entry, { error: null, sheet, stop: new AbortController() });
      this.#wait(entry);
    }
    return () => {
      entry.holders.delete(onChange);
      if (entry.holders.size === 0 && entry.url === null) this.#drop(entry);
      this.#dropOldest();
    };
  }

  /** Gives up every picture: another person may sign in. */
  clear(): void {
    for (const entry of this.#entries.values()) this.#drop(entry);
    this.#stopSheets.abort();
    this.#stopSheets = new AbortController();
  }

  #dropOldest(): void {
    for (const entry of this.#entries.values()) {
      if (this.#entries.size <= MOST_KEPT) return;
      if (entry.holders.size === 0) this.#drop(entry);
    }
  }

  #drop(entry: Entry): void {
    entry.stop?.abort();
    if (entry.url !== null) URL.revokeObjectURL(entry.url);
    if (this.#entries.get(entry.path) === entry) this.#entries.delete(entry.path);
  }

  #wait(entry: Entry): void {
    entry.burst = this.#burst;
    if (this.#isBurst) return;
    this.#isBurst = true;
    setTimeout(() => {
      this.#isBurst = false;
      this.#burst++;
      this.#next();
    });
  }

  #next(): void {
    while (this.#running < MOST_FETCHES) {
      const waiting = [...this.#entries.values()].filter(({ burst }) => burst !== null);
      const newest = Math.max(...waiting.map(({ burst }) => burst ?? 0));
      const first = waiting.find(({ burst }) => burst === newest);
      if (!first) return;
      const { sheet } = first;
      const ofSheet = sheet ? waiting.filter((each) => each.sheet?.path === sheet.path) : [];
      const work =
        sheet && ofSheet.length >= LEAST_OF_SHEET ? this.#fetchSheet(sheet, ofSheet) : this.#fetch(first);
      this.#running++;
      void work.finally(() => {
        this.#running--;
        this.#next();
      });
    }
  }

  /** Fetches a sheet. Those of `wanted` that it comes without, because the service has not made them yet, are fetched alone. */
  async #fetchSheet({ batchId, path }: Sheet, wanted: readonly Entry[]): Promise<void> {
    for (const entry of wanted) entry.burst = null;
    try {
      const call = { signal: this.#stopSheets.signal, cache: "default" as const };
      const { data } = await fetchJson<ListEnvelope<ItemThumbnail>>(path, call);
      for (const { custom_id, data: webp } of data) {
        const own = thumbnailPath(batchId, custom_id, 256);
        const entry = this.#entries.get(own) ?? newEntry(own);
        if (webp === null || entry.url !== null) continue;
        entry.stop?.abort();
        Object.assign(entry, { stop: null, burst: null, url: `data:image/webp;base64,${webp}` });
        this.#entries.set(own, entry);
        this.#arrived.add(entry);
      }
      this.#update();
      this.#dropOldest();
    } catch {
      // Whatever is wrong: the pictures themselves say it.
    }
    for (const entry of wanted) {
      if (entry.stop === null || entry.stop.signal.aborted) continue;
      entry.sheet = null;
      this.#wait(entry);
    }
  }

  async #fetch(entry: Entry): Promise<void> {
    entry.burst = null;
    const signal = entry.stop?.signal ?? null;
    try {
      // A picture never changes: the browser may have kept it.
      const blob = await (await send(entry.path, { signal, cache: "default" })).blob();
      if (!signal?.aborted) entry.url = URL.createObjectURL(blob);
    } catch (error) {
      entry.error = error instanceof Error ? error : new Error(String(error));
    }
    if (signal?.aborted) return;
    entry.stop = null;
    this.#arrived.add(entry);
    // With those that arrive shortly after it.
    if (this.#arrived.size === 1) setTimeout(() => this.#update(), TELL_GAP_MS);
  }

  #update(): void {
    const arrived = [...this.#arrived];
    this.#arrived.clear();
    for (const { holders, url, error } of arrived) for (const onChange of holders) onChange({ url, error });
  }
}

function newEntry(path: string): Entry {
  return { path, url: null, error: null, holders: new Set(), stop: null, burst: null, sheet: null };
}

export const pictures = new Pictures();

/** A picture of the service, fetched while the caller shows it, alone or with its sheet. Null path: none. */
function usePicture(path: string | null, sheet: Sheet | null): Picture {
  const [picture, setPicture] = useState<Picture & { path: string | null }>({
    path: null,
    url: null,
    error: null,
  });
  // Another sheet is no other picture.
  const latestSheet = useRef(sheet);
  latestSheet.current = sheet;
  useEffect(() => {
    if (path === null) return;
    return pictures.hold(path, latestSheet.current, (now) => setPicture({ path, ...now }));
  }, [path]);
  return picture.path === path ? picture : { url: null, error: null };
}

/** A picture of the service, or the place of one that is still on its way. With its `size` it fills its box as far as it goes. */
export function RemotePicture(props: {
  path: string | null;
  sheet?: Sheet | null;
  alt: string;
  size?: { width: number; height: number } | undefined;
}) {
  const { path, sheet = null, alt, size } = props;
  const { url, error } = usePicture(path, sheet);
  if (url !== null) {
    // The ratio of a small picture is rounded: `cover` leaves no edge of its box.
    const style = size && ({ "--ratio": size.width / size.height, objectFit: "cover" } as CSSProperties);
    return <img src={url} alt={alt} draggable={false} style={style} />;
  }
  const named = alt === "" ? {} : { role: "img", "aria-label": alt };
  return (
    <span className={error ? "picture-lost" : "picture-waits"} title={error?.message} {...named}>
      {error && <Icon name="warning" />}
    </span>
  );
}
