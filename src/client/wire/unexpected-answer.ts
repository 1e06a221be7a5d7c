import { ImgbatchError } from "../../contract/errors.ts";
import type { JsonAnswer } from "../../http/http.ts";

export function unexpectedAnswer(what: string, answer: JsonAnswer): ImgbatchError {
  const { requestId } = answer;
  return new ImgbatchError("BAD_RESPONSE", `The service's answer is not ${what}.`, { requestId });
}
