import { ImgbatchError } from "../../contract/errors.ts";
import {
  IDEMPOTENCY_KEY_HEADER,
  IDEMPOTENCY_REPLAYED_HEADER,
  MAX_COST_HEADER,
  routes,
} from "../../contract/routes.ts";
import type { Http } from "../../http/http.ts";
import type { JsonAnswer } from "../../http/json-answer.ts";
import type { StreamedBody } from "../../http/transport.ts";
import { microsToDecimal } from "../../kernel/money.ts";
import { type Batch, readBatch } from "../wire/read-batch.ts";

/** A create body can be as large as 192 MiB of text. */
const CREATE_TIMEOUT_MS = 300_000;

export interface CreatedBatch {
  batch: Batch;
  /** The service knew the idempotency key and returned the batch that was made with it. */
  replayed: boolean;
}

/**
 * Makes a batch. `body` is the JSON text of the request, `key` its idempotency key: sending twice makes one batch.
 * Throws `SUBMISSION_UNKNOWN` when the request may have arrived without an answer: ask again with the same key. After
 * `signal` no further attempt leaves. The attempt under way ends with `answerSignal` if given, else with `signal`.
 * `consentMicroUsd` is the most that the batch may hold, with the caller's consent to pay it; null, the default, is none.
 */
export async function createBatch(
  http: Http,
  body: string | StreamedBody,
  key: string,
  options: {
    signal?: AbortSignal | undefined;
    answerSignal?: AbortSignal | undefined;
    consentMicroUsd?: number | null;
  } = {},
): Promise<CreatedBatch> {
  const { consentMicroUsd = null, ...signals } = options;
  const answer = await http.json({
    method: "POST",
    path: routes.batches,
    headers: {
      [IDEMPOTENCY_KEY_HEADER]: key,
      ...(consentMicroUsd === null ? {} : { [MAX_COST_HEADER]: microsToDecimal(consentMicroUsd) }),
    },
    body,
    timeoutMs: CREATE_TIMEOUT_MS,
    submits: true,
    ...signals,
  });
  const batch = readBatch(answer.json);
  // Something was accepted. Only the same key can find out which batch it was.
  if (batch === null)
    throw new ImgbatchError("SUBMISSION_UNKNOWN", "The service accepted the request but returned no batch.", {
      requestId: answer.requestId,
    });
  return { batch, replayed: isReplay(answer, batch) };
}

/** Not every service sends the header. A batch that is under way already, or older than its request, existed before. */
function isReplay({ headers }: JsonAnswer, { status, createdAtMs }: Batch): boolean {
  const replayed = headers.get(IDEMPOTENCY_REPLAYED_HEADER)?.toLowerCase();
  if (replayed !== undefined) return replayed === "true";
  if (status !== "queued") return true;
  const answeredAtMs = Date.parse(headers.get("date") ?? "");
  return createdAtMs !== null && createdAtMs < answeredAtMs - CREATE_TIMEOUT_MS;
}
