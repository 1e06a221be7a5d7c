import { routes } from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import type { Batch } from "../wire/read-batch.ts";
import { sendChange } from "./change.ts";
import { getBatch } from "./get.ts";

/** Asks a service to stop a batch, and returns the batch as it is afterwards. An ended batch stays as it is. */
export async function cancelBatch(http: Http, id: string, signal?: AbortSignal): Promise<Batch> {
  const { error } = await sendChange(http, { method: "POST", path: routes.cancel(id), signal });
  if (error !== null) throw error;
  return (await getBatch(http, id, { signal })).batch;
}
