import { ImgbatchError } from "../../contract/errors.ts";

/** The error for an answer of 2xx that is not `what`, such as `a list of models`. */
export function unexpectedAnswer(what: string, requestId: string | undefined): ImgbatchError {
  return new ImgbatchError("BAD_RESPONSE", `The service's answer is not ${what}.`, { requestId });
}
