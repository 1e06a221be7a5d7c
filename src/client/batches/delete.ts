import { ImgbatchError } from "../../contract/errors.ts";
import { routes } from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import type { Batch } from "../wire/read-batch.ts";
import { sendChange } from "./change.ts";
import { getBatch } from "./get.ts";

/** Deletes the images of an ended batch, and returns the batch as it is afterwards. */
export async function deleteOutputs(http: Http, id: string, signal?: AbortSignal): Promise<Batch> {
  const { error } = await sendChange(http, { method: "DELETE", path: routes.outputs(id), signal });
  if (error !== null) throw error;
  return (await getBatch(http, id, { signal })).batch;
}

/**
 * Hides an ended batch for good. An earlier attempt without a response may have hidden the batch already: then a
 * missing batch counts as success.
 */
export async function deleteRecord(http: Http, id: string, signal?: AbortSignal): Promise<void> {
  const request = { method: "DELETE" as const, path: routes.batch(id), signal };
  const { attempts, error } = await sendChange(http, request);
  const wasDone = attempts > 1 && error instanceof ImgbatchError && error.code === "BATCH_IMAGE_NOT_FOUND";
  if (error !== null && !wasDone) throw error;
}
