import { errorEntry, type ImgbatchError } from "../../contract/errors.ts";
import { openaiCode, openaiErrorBody } from "../../contract/openai-api.ts";
import type { ErrorStyle } from "../operation.ts";

/** OpenAI's client libraries ignore a longer time, and ask again at once. */
const LONGEST_RETRY_SECONDS = 60;
/** The statuses after which those libraries ask again, though the images would be paid again. */
const FINAL_STATUSES: readonly number[] = [402, 409, 502, 504];
const FINAL_CODES: readonly string[] = ["REALTIME_REFUSED", "REALTIME_NO_IMAGE"];

/**
 * Errors in OpenAI's shape. The status line has the message of the code in the catalogue, because some clients show
 * nothing else of an error.
 */
export const openaiErrorStyle: ErrorStyle = {
  body: openaiErrorBody,
  schema: (codes) => ({
    allOf: [
      { $ref: "#/components/schemas/OpenaiError" },
      { properties: { error: { properties: { code: { enum: codes.map(openaiCode) } } } } },
    ],
  }),
  head: (error) => ({ reason: reasonOf(error), headers: headersOf(error) }),
};

/** Nothing but printable ASCII fits into a status line. */
function reasonOf({ code }: ImgbatchError): string {
  return errorEntry(code)
    .message.replace(/[^\x20-\x7e]/g, "")
    .replace(/\.$/, "");
}

function headersOf({ code, httpStatus, retryAfterMs }: ImgbatchError): Record<string, string> {
  const isFinal = FINAL_STATUSES.includes(httpStatus) || FINAL_CODES.includes(code);
  const seconds = Math.ceil((retryAfterMs ?? 0) / 1000);
  return {
    ...(isFinal ? { "x-should-retry": "false" } : {}),
    ...(seconds > LONGEST_RETRY_SECONDS ? { "Retry-After": String(LONGEST_RETRY_SECONDS) } : {}),
  };
}

/** Also for paths as they were sent, where no request could be parsed. */
export const openaiErrorStyles: readonly (readonly [RegExp, ErrorStyle])[] = [
  [/^(?:\/v1)?\/images\/(?:generations|edits|outputs)(?:\/|$)/, openaiErrorStyle],
];
