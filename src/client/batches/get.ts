import { routes } from "../../contract/routes.ts";
import { retryAfterMs } from "../../http/error-response.ts";
import type { Http } from "../../http/http.ts";
import { type Batch, readBatch } from "../wire/read-batch.ts";
import { unexpectedAnswer } from "../wire/unexpected-answer.ts";

export interface BatchSnapshot {
  batch: Batch;
  /** When the service wants to be asked again. */
  retryAfterMs: number | null;
}

/** One look at a batch. `nowMs` reads a `Retry-After` date. */
export async function getBatch(
  http: Http,
  id: string,
  options: { signal?: AbortSignal | undefined; maxRetries?: number; nowMs?: number } = {},
): Promise<BatchSnapshot> {
  const { nowMs = 0, signal, ...rest } = options;
  const answer = await http.json({ method: "GET", path: routes.batch(id), signal, ...rest });
  const batch = readBatch(answer.json);
  if (batch?.id !== id) throw unexpectedAnswer(`the batch ${id}`, answer);
  return { batch, retryAfterMs: retryAfterMs(answer.headers, nowMs) };
}
