import type { ItemThumbnail, ListEnvelope } from "../../contract/batch-api.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { routes } from "../../contract/routes.ts";
import { fetchJson, send } from "./request.ts";

/** Small pictures of items that follow each other, which one request brings. */
export interface Sheet {
  batchId: string;
  /** The position of its first item in the batch. */
  start: number;
}

/** The sheet with the picture of the item at a position. */
export function sheetAt(batchId: string, position: number): Sheet {
  return { batchId, start: position - (position % FIXED_LIMITS.thumbnailPageMax) };
}

/** The path of the first image of an item, made small for a square of `edgePx` pixels. */
export function thumbnailPath(batchId: string, customId: string, edgePx: 256 | 1024): string {
  return `${routes.thumbnail(batchId, customId)}?width=${edgePx}`;
}

/** The small pictures of a sheet by their paths, as data URLs. Those that the service has not made yet are missing. */
async function fetchSheet({ batchId, start }: Sheet, signal: AbortSignal): Promise<[string, string][]> {
  const path = `${routes.thumbnails(batchId)}?cursor=${start}`;
  const { data } = await fetchJson<ListEnvelope<ItemThumbnail>>(path, { signal, cache: "default" });
  return data.flatMap(({ custom_id, data: webp }): [string, string][] =>
    webp === null ? [] : [[thumbnailPath(batchId, custom_id, 256), `data:image/webp;base64,${webp}`]],
  );
}

export interface Picture {
  /** An object URL or a data URL; null until the bytes are there. */
  url: string | null;
  error: Error | null;
}

interface Entry extends Picture {
  holders: Set<(picture: Picture) => void>;
  /** Ends the fetch that runs or waits. */
  stop: AbortController | null;
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
 * The pictures of the page, by path: fetched with the session's token, few at once. Those that are asked for at one
 * time come in their order, and before those of earlier times. A picture that is no longer shown is not fetched, and
 * its memory is freed after a while.
 */
class Pictures {
  readonly #entries = new Map<string, Entry>();
  /** Paths that wait for their turn, by the time when they were asked for. */
  #bursts: Set<string>[] = [];
  #isBurst = false;
  #running = 0;
  /** The pictures that arrived since the last update. */
  readonly #come = new Set<Entry>();
  /** Ends the sheets that are fetched. */
  #stopSheets = new AbortController();

  /**
   * Shows a picture, which a `sheet` may have, too: `onChange` is called when it is there or has failed. Call `release` in the
   * end.
   */
  hold(path: string, sheet: Sheet | null, onChange: (picture: Picture) => void): { release: () => void } {
    const entry = this.#entries.get(path) ?? newEntry();
    // Behind all others: the first ones are given up first.
    this.#entries.delete(path);
    this.#entries.set(path, entry);
    entry.holders.add(onChange);
    if (entry.url !== null) onChange({ url: entry.url, error: null });
    else if (entry.stop === null) {
      entry.error = null;
      entry.sheet = sheet;
      entry.stop = new AbortController();
      this.#wait(path);
    }
    return { release: () => this.#release(path, entry, onChange) };
  }

  /** Gives up every picture: another person may sign in. */
  clear(): void {
    for (const [path, entry] of this.#entries) this.#drop(path, entry);
    this.#bursts = [];
    this.#stopSheets.abort();
    this.#stopSheets = new AbortController();
  }

  #release(path: string, entry: Entry, onChange: (picture: Picture) => void): void {
    entry.holders.delete(onChange);
    if (entry.holders.size > 0) return;
    if (entry.url === null) this.#drop(path, entry);
    this.#dropOldest();
  }

  #dropOldest(): void {
    for (const [old, { holders }] of this.#entries) {
      if (this.#entries.size <= MOST_KEPT) return;
      const kept = this.#entries.get(old);
      if (kept && holders.size === 0) this.#drop(old, kept);
    }
  }

  #drop(path: string, entry: Entry): void {
    entry.stop?.abort();
    if (entry.url !== null) URL.revokeObjectURL(entry.url);
    if (this.#entries.get(path) === entry) this.#entries.delete(path);
  }

  #wait(path: string): void {
    for (const burst of this.#bursts) burst.delete(path);
    if (!this.#isBurst) {
      this.#bursts.push(new Set());
      this.#isBurst = true;
      setTimeout(() => {
        this.#isBurst = false;
        this.#next();
      });
    }
    this.#bursts.at(-1)?.add(path);
  }

  /** Shows a picture that has arrived, together with those that arrive shortly after it. */
  #tell(entry: Entry): void {
    this.#come.add(entry);
    if (this.#come.size > 1) return;
    setTimeout(() => this.#tellAll(), TELL_GAP_MS);
  }

  #tellAll(): void {
    const come = [...this.#come];
    this.#come.clear();
    for (const { holders, url, error } of come) for (const tell of holders) tell({ url, error });
  }

  #next(): void {
    while (this.#running < MOST_FETCHES) {
      const burst = this.#bursts.findLast(({ size }) => size > 0);
      const [path] = burst ?? [];
      if (burst === undefined || path === undefined) {
        this.#bursts = this.#isBurst ? this.#bursts.slice(-1) : [];
        return;
      }
      const entry = this.#entries.get(path);
      const sheet = entry?.sheet ?? null;
      const ofSheet = sheet ? this.#waitingFor(sheet) : [];
      if (sheet && ofSheet.length >= LEAST_OF_SHEET) void this.#fetchSheet(sheet, ofSheet);
      else {
        burst.delete(path);
        if (entry?.stop && !entry.stop.signal.aborted) void this.#fetch(path, entry, entry.stop.signal);
      }
    }
  }

  /** The waiting paths whose pictures are in a sheet. */
  #waitingFor({ batchId, start }: Sheet): string[] {
    const waiting = this.#bursts.flatMap((burst) => [...burst]);
    return waiting.filter((path) => {
      const sheet = this.#entries.get(path)?.sheet;
      return sheet?.start === start && sheet.batchId === batchId;
    });
  }

  /** Fetches a sheet. Those of `paths` that it comes without are fetched alone. */
  async #fetchSheet(sheet: Sheet, paths: readonly string[]): Promise<void> {
    this.#running++;
    const { signal } = this.#stopSheets;
    for (const burst of this.#bursts) for (const path of paths) burst.delete(path);
    try {
      for (const [path, url] of await fetchSheet(sheet, signal)) {
        const entry = this.#entries.get(path) ?? newEntry();
        if (entry.url !== null) continue;
        entry.stop?.abort();
        entry.stop = null;
        entry.url = url;
        this.#entries.set(path, entry);
        this.#come.add(entry);
      }
      this.#tellAll();
      this.#dropOldest();
    } catch {
      // Whatever is wrong: the pictures themselves say it.
    } finally {
      this.#running--;
      for (const path of paths) {
        const entry = this.#entries.get(path);
        if (entry?.stop) {
          entry.sheet = null;
          this.#wait(path);
        }
      }
      this.#next();
    }
  }

  async #fetch(path: string, entry: Entry, signal: AbortSignal): Promise<void> {
    this.#running++;
    try {
      // A picture never changes: the browser may have kept it.
      const blob = await (await send(path, { signal, cache: "default" })).blob();
      if (!signal.aborted) entry.url = URL.createObjectURL(blob);
    } catch (error) {
      entry.error = error instanceof Error ? error : new Error(String(error));
    } finally {
      this.#running--;
      if (!signal.aborted) {
        entry.stop = null;
        this.#tell(entry);
      }
      this.#next();
    }
  }
}

function newEntry(): Entry {
  return { url: null, error: null, holders: new Set(), stop: null, sheet: null };
}

export const pictures = new Pictures();
