import { ImgbatchError } from "../contract/errors.ts";
import { REQUEST_ID_HEADER } from "../contract/routes.ts";
import { hideUsedKeys, hideUsedKeysIn } from "../kernel/hide-keys.ts";
import { type JsonBounds, jsonExcess } from "../kernel/json/json-shape.ts";
import { type Answer, type AnswerHeaders, boundedBytes } from "./transport.ts";

/**
 * The cause of a `BAD_RESPONSE` that does not come from the service itself but from something before it, such as the
 * sign-in page of a network.
 */
export class NotTheService extends Error {}

/** Whether something other than the service has answered. The service may be back a moment later. */
export function isFromElsewhere(error: unknown): error is ImgbatchError {
  return error instanceof ImgbatchError && error.cause instanceof NotTheService;
}

export interface JsonAnswer {
  json: unknown;
  headers: AnswerHeaders;
  requestId: string | undefined;
  /** Size of the text after decompression. */
  bytes: number;
}

/** Parsed JSON takes many times the memory of its text, and is written again level by level. */
const JSON_BOUNDS: JsonBounds = { maxDepth: 64, maxElements: 1_000_000 };
const EXCESS = { depth: "levels", elements: "elements" };

/**
 * Reads a JSON body of at most `maxBytes`, with the keys that this process sends removed. Throws `BAD_RESPONSE` for a
 * longer body, for one with too many levels or elements, and for other text.
 */
export async function readJson(response: Answer, maxBytes: number): Promise<JsonAnswer> {
  const header = response.headers.get(REQUEST_ID_HEADER);
  const requestId = header === null ? undefined : hideUsedKeys(header);
  const facts = { requestId, httpStatus: response.status };
  const data = await boundedBytes(response.body, maxBytes);
  if (data === null) throw new ImgbatchError("BAD_RESPONSE", "The service's answer has no end.", facts);
  const excess = jsonExcess(data, JSON_BOUNDS);
  if (excess !== null)
    throw new ImgbatchError("BAD_RESPONSE", `The service's answer has too many ${EXCESS[excess]}.`, facts);
  const text = new TextDecoder().decode(data);
  try {
    const json = hideUsedKeysIn(JSON.parse(text));
    return { json, headers: response.headers, requestId, bytes: data.length };
  } catch (cause) {
    const message = `The service answered HTTP ${response.status} with something that is not JSON. Is the base URL right?`;
    throw new ImgbatchError("BAD_RESPONSE", message, {
      cause: new NotTheService("not JSON", { cause }),
      ...facts,
    });
  }
}
