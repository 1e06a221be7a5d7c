import type { BatchError } from "../records.ts";
import { endEarly } from "./end-early.ts";
import type { BatchEnd } from "./lifecycle.ts";
import type { ReadBackDeps } from "./read-back.ts";

/**
 * Ends a batch that cannot be processed as a whole. Pending items fail, intact images are paid for, and the rest of the
 * hold is released. Returns the custom ids of the items that failed with it, or null when the batch had moved on.
 */
export function failBatch(
  deps: ReadBackDeps,
  batchId: string,
  error: BatchError,
  endNow: () => BatchEnd,
): Promise<string[] | null> {
  const { message, source } = error;
  const from = ["queued", "running", "processing_results"] as const;
  const itemError = { code: "PROVIDER_ITEM_FAILED", message, source } as const;
  return endEarly(deps, batchId, { from, to: "failed", error, itemError }, endNow);
}
