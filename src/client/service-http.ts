import { ImgbatchError } from "../contract/errors.ts";
import { createHttp, type Http, type HttpOptions } from "../http/http.ts";
import { readErrorResponse } from "./wire/error-response.ts";

export interface ServiceHttpOptions extends Omit<HttpOptions, "readError"> {
  /** Puts another error in the place of one of the service. Default: none. */
  explain?: (error: ImgbatchError) => ImgbatchError;
}

/** The beginning of the paths of an API, which people copy into the base URL from the settings of other tools. */
const API_VERSION = /\/v\d\w*$/;

/** Sends requests to an image service. Errors have the codes of this program's catalogue. */
export function createServiceHttp(options: ServiceHttpOptions): Http {
  const { baseUrl } = options;
  return createHttp({
    ...options,
    readError: (...args) => {
      const read = readErrorResponse(...args);
      const answer = { ...read, error: options.explain?.(read.error) ?? read.error };
      if (answer.error.code !== "NOT_FOUND" || !API_VERSION.test(baseUrl)) return answer;
      const right = baseUrl.replace(API_VERSION, "");
      const message = `No imgbatch API at ${baseUrl}; try ${right}`;
      const advice = `run the same command with --base-url ${right}`;
      return { ...answer, error: new ImgbatchError("NOT_FOUND", message, { ...answer.error, advice }) };
    },
  });
}
