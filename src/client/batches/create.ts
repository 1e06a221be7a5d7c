import { ImgbatchError } from "../../contract/errors.ts";
import { IDEMPOTENCY_KEY_HEADER, IDEMPOTENCY_REPLAYED_HEADER, routes } from "../../contract/routes.ts";
import type { Http, JsonAnswer } from "../../http/http.ts";
import type { StreamedBody } from "../../http/streamed-body.ts";
import { type Batch, readBatch } from "../wire/read-batch.ts";

/** A create body can be as large as 192 MiB of text. */
const CREATE_TIMEOUT_MS = 300_000;

export interface CreatedBatch {
  batch: Batch;
  /** The service knew the idempotency key and answered the batch that was made with it. */
  replayed: boolean;
}

/**
 * Makes a batch. `body` is the JSON text of the request, `key` its idempotency key: sending twice makes one batch.
 * Throws `SUBMISSION_UNKNOWN` when the request may have arrived without an answer; ask again with the same key. After
 * `signal` no other attempt leaves; the one under way ends with it too, or with `answerSignal` where that is given.
 */
export async function createBatch(
  http: Http,
  body: string | StreamedBody,
  key: string,
  signals: { signal?: AbortSignal | undefined; answerSignal?: AbortSignal | undefined } = {},
): Promise<CreatedBatch> {
  const answer = await http.json({
    method: "POST",
    path: routes.batches,
    headers: { [IDEMPOTENCY_KEY_HEADER]: key },
    body,
    timeoutMs: CREATE_TIMEOUT_MS,
    submits: true,
    ...signals,
  });
  const batch = readBatch(answer.json);
  // Something was accepted, but what, only the same key can tell.
  if (batch === null)
    throw new ImgbatchError("SUBMISSION_UNKNOWN", "The service took the request and answered no batch.", {
      requestId: answer.requestId,
    });
  return { batch, replayed: isReplay(answer, batch) };
}

/** Not every service says so; but a batch that is under way already, or older than its request, was there before. */
function isReplay({ headers }: JsonAnswer, { status, createdAtMs }: Batch): boolean {
  const says = headers.get(IDEMPOTENCY_REPLAYED_HEADER)?.toLowerCase();
  if (says !== undefined) return says === "true";
  if (status !== "queued") return true;
  const answeredAtMs = Date.parse(headers.get("date") ?? "");
  return createdAtMs !== null && createdAtMs < answeredAtMs - CREATE_TIMEOUT_MS;
}
