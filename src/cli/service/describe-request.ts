import type { Attempt } from "../../http/http.ts";

/** Describes a request for `--verbose`: `GET /v1/images/batches: HTTP 200, 12 ms, request id req_…`. */
export function describeRequest({ method, path, status, durationMs, requestId }: Attempt): string {
  const answer = status === null ? "no answer" : `HTTP ${status}`;
  const id = requestId === undefined ? "" : `, request id ${requestId}`;
  return `${method} ${path}: ${answer}, ${Math.round(durationMs)} ms${id}`;
}
