import { type JobResult, ProviderError } from "../../domain/ports/image-provider.ts";
import { headersOf } from "../../http/transport.ts";
import type { ImagesJson } from "../upstream/answer-images.ts";
import { answerError } from "../upstream/classify.ts";
import type { UpstreamHttp } from "../upstream/http.ts";
import { readImages } from "../upstream/openai-images/response.ts";
import { countAt, textAt, valueAt } from "../upstream/read-json.ts";
import { upstreamWords } from "../upstream/words.ts";

/** Reads a line of a result file: a response with its status, or an error of the job, for a key. */
export async function readResult(
  http: UpstreamHttp,
  { value: line, ...images }: ImagesJson,
  signal: AbortSignal,
  nowMs: number,
): Promise<JobResult> {
  const key = textAt(line, "custom_id");
  if (key === null) return { unreadable: "a line without a custom_id" };
  const status = countAt(line, "response", "status_code");
  const body = valueAt(line, "response", "body");
  try {
    if (status === null) throw jobError(http.name, line);
    if (status < 200 || status >= 300 || valueAt(body, "error") !== undefined)
      throw answerError(http.name, { status, headers: headersOf({}), body, isHtml: false, asked: "" }, nowMs);
    // An address in a result needs no key of ours.
    return { key, output: await readImages(http, { value: body, ...images }, {}, signal) };
  } catch (failure) {
    if (!(failure instanceof ProviderError)) throw failure;
    return { key, error: failure };
  }
}

/** Codes of requests that were not run, because their job has ended before. */
const UNRUN: readonly unknown[] = ["batch_expired", "batch_cancelled"];

/** The request has no response. `RESULT_MISSING`: it was not run. */
function jobError(name: string, line: unknown): ProviderError {
  const words = upstreamWords(textAt(line, "error", "message") ?? textAt(line, "error", "code") ?? "");
  const code = UNRUN.includes(valueAt(line, "error", "code")) ? "RESULT_MISSING" : "PROVIDER_ITEM_FAILED";
  return new ProviderError(code, words || `${name} returned no response for this image.`, {
    retryable: false,
  });
}
