import type { Batch } from "../client/read-batch.ts";
import type { BatchItem } from "../client/read-lists.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { ResultLine } from "./results.ts";

/**
 * Throws `BAD_RESPONSE` when the service lists fewer items than the batch has.
 * Rule: RUN-16.
 */
export function requireWholeList(batch: Batch, items: readonly BatchItem[]): void {
  if (batch.itemCount === null || items.length >= batch.itemCount) return;
  const message = `The service lists ${items.length} of the ${batch.itemCount} items of ${batch.id}.`;
  throw new ImgbatchError("BAD_RESPONSE", message);
}

/**
 * Throws `BAD_RESPONSE` when images that were asked for are in no batch of the run: then these are not its batches.
 * Services may count the images of an item in another way than `_01`, `_02`: the beginning of the id decides.
 * Rule: RUN-22.
 */
export function requireAskedFor(ids: readonly string[], lines: readonly ResultLine[]): void {
  const asked = new Set(ids);
  const listed = new Set(lines.map((line) => line.custom_id));
  const others = [...listed].filter((id) => !asked.has(id));
  const absent = ids.filter((id) => {
    if (listed.has(id)) return false;
    const stem = id.replace(/_\d+$/, "");
    return !others.some((other) => other.startsWith(stem));
  });
  if (absent.length === 0) return;
  const message = `The service's batches are not what was asked for: ${absent.length} of ${ids.length} images are in none of them, ${JSON.stringify(absent[0])} among them.`;
  throw new ImgbatchError("BAD_RESPONSE", message);
}

/** What an item without an outcome failed of, when its batch has ended. */
export function errorOf(item: BatchItem): ResultLine["error"] | null {
  if (item.error !== null || item.status === "success" || item.status === "failed") return item.error;
  const message = `The batch has ended, but the service calls this item ${JSON.stringify(item.status)}.`;
  return { code: "NO_OUTCOME", message, source: "client" };
}
