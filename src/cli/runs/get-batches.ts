import { getBatch } from "../../client/batches/get.ts";
import type { Batch } from "../../client/wire/read-batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Http } from "../../http/http.ts";

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

/** Gets each batch, one after the other. */
export async function requireBatches(
  http: Http,
  ids: readonly string[],
  signal: AbortSignal,
): Promise<Batch[]> {
  const batches: Batch[] = [];
  for (const id of ids) batches.push(await requireBatch(http, id, signal));
  return batches;
}
