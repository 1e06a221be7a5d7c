import type { Http } from "../http/http.ts";
import { listItems } from "./batches/list-items.ts";
import type { Batch } from "./wire/read-batch.ts";

/**
 * Returns an ended batch with its counts. When the service does not send them, its items are listed and counted: an item
 * without an image has failed. Any other batch is returned as it is.
 */
export async function withCounts(http: Http, batch: Batch, signal?: AbortSignal): Promise<Batch> {
  if (batch.hasCounts || !batch.isDone || batch.isUnknown || batch.status === "output_deleted") return batch;
  const items = await listItems(http, batch.id, signal);
  const successCount = items.filter((item) => item.status === "success").length;
  const itemCount = items.length;
  return { ...batch, itemCount, successCount, failCount: itemCount - successCount, hasCounts: true };
}

/** Does the same for each batch. */
export async function allWithCounts(
  http: Http,
  batches: readonly Batch[],
  signal?: AbortSignal,
): Promise<Batch[]> {
  const counted: Batch[] = [];
  for (const batch of batches) counted.push(await withCounts(http, batch, signal));
  return counted;
}
