import type { Http } from "../http/http.ts";
import { listItems } from "./batches/list-items.ts";
import type { Batch } from "./wire/read-batch.ts";

/**
 * An ended batch with its counts. A service that does not say them is asked for the items, and these are counted; what
 * has neither an image nor an error by then has failed.
 */
export async function withCounts(http: Http, batch: Batch, signal?: AbortSignal): Promise<Batch> {
  if (batch.hasCounts || !batch.isDone || batch.status === "output_deleted") return batch;
  const items = await listItems(http, batch.id, signal);
  const successCount = items.filter((item) => item.status === "success").length;
  const itemCount = items.length;
  return { ...batch, itemCount, successCount, failCount: itemCount - successCount, hasCounts: true };
}

/** The same for each of some batches. */
export async function allWithCounts(
  http: Http,
  batches: readonly Batch[],
  signal?: AbortSignal,
): Promise<Batch[]> {
  const counted: Batch[] = [];
  for (const batch of batches) counted.push(await withCounts(http, batch, signal));
  return counted;
}
