import type { Batch } from "../../client/batch.ts";
import { getBatch } from "../../client/batches.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Http } from "../../http/http.ts";
import { findBatch } from "../../runs/run-batches.ts";
import type { Target } from "./targets.ts";

/** Gets a batch. Throws `BATCH_IMAGE_NOT_FOUND` with the id in its message. */
export async function requireBatch(http: Http, id: string, signal: AbortSignal): Promise<Batch> {
  try {
    return (await getBatch(http, id, { signal })).batch;
  } catch (error) {
    if (!(error instanceof ImgbatchError) || error.code !== "BATCH_IMAGE_NOT_FOUND") throw error;
    const { requestId, httpStatus } = error;
    const other = id.startsWith("imgbatch_") ? "" : ", and no run directory with this name";
    const message = `There is no batch ${id} for this key${other}.`;
    throw new ImgbatchError(error.code, message, { requestId, httpStatus });
  }
}

/**
 * Gets each batch of the targets, one after the other. An ended batch of a run whose record the service has deleted is
 * returned as the run state knows it.
 */
export async function requireBatches(
  http: Http,
  targets: readonly Pick<Target, "ids" | "run">[],
  signal: AbortSignal,
): Promise<Batch[]> {
  const batches: Batch[] = [];
  for (const { ids, run } of targets)
    for (const id of ids) {
      const entry = run?.state.batches.find((each) => each.id === id);
      batches.push(
        await (entry === undefined ? requireBatch(http, id, signal) : findBatch(http, entry, id, signal)),
      );
    }
  return batches;
}
