import { type JobResult, ProviderError } from "../../domain/ports/image-provider.ts";
import { headersOf } from "../../http/transport.ts";
import type { ImagesJson } from "../upstream/answer-images.ts";
import { answerError } from "../upstream/classify.ts";
import { readContent } from "../upstream/generate-content/response.ts";
import { textAt, valueAt } from "../upstream/read-json.ts";

/** The HTTP statuses of the codes of `google.rpc.Status`, as the vendor's API maps them. */
const HTTP_STATUSES: Readonly<Record<number, number>> = {
  1: 499,
  3: 400,
  4: 504,
  5: 404,
  7: 403,
  8: 429,
  9: 400,
  11: 400,
  14: 503,
  16: 401,
};

/** Reads a line of a result file: a response or an error for a key. */
export function readResult(name: string, { value: line, decode }: ImagesJson, nowMs: number): JobResult {
  const key = textAt(line, "key") ?? textAt(line, "metadata", "key");
  if (key === null) return { unreadable: "a line without a key" };
  const error = valueAt(line, "error");
  if (error !== undefined && error !== null) return { key, error: lineError(name, error, nowMs) };
  try {
    return { key, output: readContent(name, valueAt(line, "response") ?? line, decode) };
  } catch (failure) {
    if (!(failure instanceof ProviderError)) throw failure;
    return { key, error: failure };
  }
}

function lineError(name: string, error: unknown, nowMs: number): ProviderError {
  const code = valueAt(error, "code");
  const isHttp = typeof code === "number" && code >= 400 && code < 600;
  const status = isHttp ? code : (HTTP_STATUSES[Number(code)] ?? (code === undefined ? 200 : 500));
  return answerError(
    name,
    { status, headers: headersOf({}), body: { error }, isHtml: false, asked: "" },
    nowMs,
  );
}
