import type { ItemError } from "../../contract/statuses.ts";
import { endEarly } from "./end-early.ts";
import type { BatchEnd } from "./lifecycle.ts";
import type { ReadBackDeps } from "./read-back.ts";

const CANCELLED: ItemError = {
  code: "CANCELLED",
  message: "The batch was cancelled before this item was made.",
  source: "service",
};

/**
 * Cancels a batch: unfinished items fail, intact images are paid for and stay, and the rest of the hold is released.
 * Running work loses its lease, so a late result is dropped. Returns the custom ids of the unfinished items, or null,
 * without any change, when the batch had ended.
 */
export function cancelBatch(
  deps: ReadBackDeps,
  batchId: string,
  endNow: () => BatchEnd,
): Promise<string[] | null> {
  const from = ["queued", "running", "processing_results", "settling"] as const;
  return endEarly(deps, batchId, { from, to: "cancelled", itemError: CANCELLED }, endNow);
}
