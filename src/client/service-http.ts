import { createHttp, type Http, type HttpOptions } from "../http/http.ts";
import { readErrorResponse } from "./wire/error-response.ts";

export type ServiceHttpOptions = Omit<HttpOptions, "readError">;

/** Sends requests to an image service. Errors have the codes of this program's catalogue. */
export function createServiceHttp(options: ServiceHttpOptions): Http {
  return createHttp({ ...options, readError: readErrorResponse });
}
