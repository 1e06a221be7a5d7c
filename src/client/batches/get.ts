import { routes } from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import { retryAfterMs } from "../../http/retries.ts";
import { type Batch, readBatch } from "../wire/read-batch.ts";
import { unexpectedAnswer } from "../wire/unexpected-answer.ts";

export interface BatchSnapshot {
  batch: Batch;
  /** How long the service asks to wait before the next request, in ms; null when it does not ask. */
  retryAfterMs: number | null;
}

/** Gets a batch as it is now. `nowMs` is needed to read a `Retry-After` date. */
export async function getBatch(
  http: Http,
  id: string,
  options: { signal?: AbortSignal | undefined; maxRetries?: number; nowMs?: number } = {},
): Promise<BatchSnapshot> {
  const { nowMs = 0, signal, ...rest } = options;
  const answer = await http.json({ method: "GET", path: routes.batch(id), signal, ...rest });
  const batch = readBatch(answer.json);
  if (batch?.id !== id) throw unexpectedAnswer(`the batch ${id}`, answer.requestId);
  return { batch, retryAfterMs: retryAfterMs(answer.headers, nowMs) };
}
