import type { ItemThumbnail, ListEnvelope } from "../../contract/batch-api.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { routes } from "../../contract/routes.ts";
import { fetchJson } from "./request.ts";

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
export async function fetchSheet(
  { batchId, start }: Sheet,
  signal: AbortSignal,
): Promise<[string, string][]> {
  const path = `${routes.thumbnails(batchId)}?cursor=${start}`;
  const { data } = await fetchJson<ListEnvelope<ItemThumbnail>>(path, { signal, cache: "default" });
  return data.flatMap(({ custom_id, data: webp }): [string, string][] =>
    webp === null ? [] : [[thumbnailPath(batchId, custom_id, 256), `data:image/webp;base64,${webp}`]],
  );
}
