import { type Batch, type BatchItem, hasImages } from "../client/batch.ts";
import { type ErrorCode, ImgbatchError } from "../contract/errors.ts";
import type { ResultLine } from "./directory/results.ts";
import { submittedBatches } from "./directory/run-state.ts";
import type { RunBatch, RunState } from "./directory/run-state-schema.ts";
import { CLIENT } from "./standing.ts";

/** Throws `BAD_RESPONSE` when the service lists fewer items than the batch has. */
export function requireWholeList(batch: Batch, items: readonly BatchItem[]): void {
  if (batch.itemCount === null || items.length >= batch.itemCount) return;
  const message = `The service lists ${items.length} of the ${batch.itemCount} items of ${batch.id}.`;
  throw new ImgbatchError("BAD_RESPONSE", message);
}

/** Throws `BAD_RESPONSE` when requested images are in no batch of the run: these are not its batches. */
export function requireAskedFor(ids: readonly string[], lines: readonly ResultLine[]): void {
  const absent = absentIds(ids, lines);
  if (absent.length === 0) return;
  const message = `The service's batches are not what was asked for: ${absent.length} of ${ids.length} images are in none of them, ${JSON.stringify(absent[0])} among them.`;
  throw new ImgbatchError("BAD_RESPONSE", message);
}

/**
 * Returns the requested images without a line. A service may number the images of an item in another way than `_01`, `_02`,
 * so the beginning of the id decides.
 */
function absentIds(ids: readonly string[], lines: readonly ResultLine[]): string[] {
  const asked = new Set(ids);
  const listed = new Set(lines.map((line) => line.custom_id));
  const others = [...listed].filter((id) => !asked.has(id)).sort();
  return ids.filter((id) => {
    if (listed.has(id)) return false;
    const stem = id.replace(/_\d+$/, "");
    return firstFrom(others, stem)?.startsWith(stem) !== true;
  });
}

/**
 * Returns the lines of the images that have none, because the service does not know their batches. `ids` are all images, in
 * the order of the input. None where the service knows all batches.
 */
export function lostLines(
  runState: RunState,
  ids: readonly string[],
  lines: readonly ResultLine[],
  unknown: ReadonlyMap<RunBatch, ImgbatchError>,
): ResultLine[] {
  const [first] = unknown;
  if (first === undefined) return [];
  const makers = new Map<string, RunBatch>();
  let at = 0;
  // After an update, the input does not tell which prompts the first batches had.
  for (const entry of runState.updates === undefined ? submittedBatches(runState) : []) {
    const end = at + (entry.asked_count ?? 0);
    for (const id of ids.slice(at, end)) makers.set(id, entry);
    at = end;
  }
  for (const entry of runState.batches) for (const id of entry.images ?? []) makers.set(id, entry);
  return absentIds(ids, lines).map((custom_id) => {
    const own = makers.get(custom_id);
    const reason = own && unknown.get(own);
    const [entry, { code, message }] = own === undefined || reason === undefined ? first : [own, reason];
    const error = { code, message, source: CLIENT };
    return { custom_id, status: "pending", batch_id: entry.id ?? "", files: [], error };
  });
}

/** Returns why no image of a batch can be fetched; null if they can. */
export function goneOf({ id, status }: Batch, unknown: ImgbatchError | undefined): ImgbatchError | null {
  if (unknown !== undefined || status !== "output_deleted") return unknown ?? null;
  return new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED", `The images of ${id} were deleted.`);
}

/** Returns the first text of a sorted list that is not before `text`. If any text begins with `text`, this one does. */
function firstFrom(sorted: readonly string[], text: string): string | undefined {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? "") < text) low = middle + 1;
    else high = middle;
  }
  return sorted[low];
}

/**
 * Returns why an item of an ended batch has no image; null when it has one. An item without an outcome has failed only if
 * its batch failed. In a completed batch the service is late, and its image must not be paid for again.
 */
export function errorOf(item: BatchItem, batch: Batch): ResultLine["error"] | null {
  const { status } = item;
  if (hasImages(item)) return null;
  if (status === "failed") return item.error;
  if (item.error !== null && status !== "pending" && status !== "success") return item.error;
  const without = status === "success" ? " and lists no image of it" : "";
  const message = `The batch has ended, but the service calls this item ${JSON.stringify(status)}${without}.`;
  if (batch.status === "failed" || batch.status === "cancelled")
    return { code: "NO_OUTCOME", message, source: CLIENT };
  const code: ErrorCode =
    batch.status === "output_deleted" ? "BATCH_IMAGE_OUTPUT_DELETED" : "BATCH_IMAGE_NOT_READY";
  return { code, message, source: CLIENT };
}
