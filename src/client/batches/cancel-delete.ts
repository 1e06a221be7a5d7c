import { ImgbatchError } from "../../contract/errors.ts";
import { routes } from "../../contract/routes.ts";
import type { Http, HttpRequest } from "../../http/http.ts";
import type { Batch } from "../wire/read-batch.ts";
import { getBatch } from "./get.ts";

/**
 * Asks a service to stop a batch, and answers how the batch stands after it. An ended batch stays as it is.
 */
export async function cancelBatch(http: Http, id: string, signal?: AbortSignal): Promise<Batch> {
  await send(http, { method: "POST", path: routes.cancel(id), signal });
  return (await getBatch(http, id, { signal })).batch;
}

/** Deletes the images of an ended batch, and answers how the batch stands after it. */
export async function deleteOutputs(http: Http, id: string, signal?: AbortSignal): Promise<Batch> {
  await send(http, { method: "DELETE", path: routes.outputs(id), signal });
  return (await getBatch(http, id, { signal })).batch;
}

/**
 * Hides an ended batch for good. An attempt whose answer was lost may have done it: then "no such batch" is success.
 */
export async function deleteRecord(http: Http, id: string, signal?: AbortSignal): Promise<void> {
  const { attempts, error } = await attempt(http, { method: "DELETE", path: routes.batch(id), signal });
  const wasDone = attempts > 1 && error instanceof ImgbatchError && error.code === "BATCH_IMAGE_NOT_FOUND";
  if (error !== null && !wasDone) throw error;
}

async function send(http: Http, request: HttpRequest): Promise<void> {
  const { error } = await attempt(http, request);
  if (error !== null) throw error;
}

/** What these requests answer differs between services, and may be nothing: it is not looked at. */
async function attempt(http: Http, request: HttpRequest): Promise<{ attempts: number; error: unknown }> {
  let attempts = 0;
  const next = async () => {
    attempts++;
    return request;
  };
  try {
    await http.stream(next, async (response) => response.body?.cancel());
    return { attempts, error: null };
  } catch (error) {
    return { attempts, error };
  }
}
