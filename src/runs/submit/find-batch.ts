import { getBatch } from "../../client/batches/get.ts";
import { type Batch, readBatch } from "../../client/wire/read-batch.ts";
import { errorEntry, ImgbatchError } from "../../contract/errors.ts";
import type { Http } from "../../http/http.ts";
import type { RunBatch } from "../directory/run-state-schema.ts";

/**
 * Gets a batch of a run. If the service has deleted its record, and it had ended, returns it as the run state knows it, and
 * marks its entry: the images that are here still count. Any other missing batch throws.
 */
export async function findBatch(
  http: Http,
  entry: RunBatch,
  id: string,
  signal?: AbortSignal,
): Promise<Batch> {
  try {
    const { batch } = await getBatch(http, id, { signal });
    delete entry.record_deleted;
    return batch;
  } catch (error) {
    const known = isRecordGone(error) ? readBatch(factsOf(entry)) : null;
    if (known?.isDone !== true) throw error;
    entry.record_deleted = true;
    return known;
  }
}

/** Whether the service says that a batch does not exist, rather than that this key may not see it. */
function isRecordGone(error: unknown): boolean {
  if (!(error instanceof ImgbatchError)) return false;
  return [404, 410].includes(error.httpStatus) && errorEntry(error.code).exit === "gone";
}

/** The entries of the run state have the names of the API. */
function factsOf(entry: RunBatch): object {
  const { id, status, item_count, success_count, fail_count, estimated_cost, actual_cost, parent_batch_id } =
    entry;
  return { id, status, item_count, success_count, fail_count, estimated_cost, actual_cost, parent_batch_id };
}
