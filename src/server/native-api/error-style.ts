import { nativeErrorBody } from "../../contract/errors.ts";
import type { ErrorStyle } from "../operation.ts";

const schema = { $ref: "#/components/schemas/NativeError" };

/** Errors as the native API writes them. Where the response is a stream that is one JSON array, so is the error. */
const nativeErrorStyle: ErrorStyle = {
  body(error, request) {
    const body = nativeErrorBody(error);
    const isArray = request?.path.endsWith(":streamGenerateContent") && request.query.alt !== "sse";
    return isArray ? [body] : body;
  },
  schema: () => schema,
};

/**
 * The error style of each path, the first match deciding. Paths below `/v1` that belong to native clients are read as
 * those below `/v1beta` before; a path with a verb is native also where no request could be parsed.
 */
export const nativeErrorStyles: readonly (readonly [RegExp, ErrorStyle])[] = [
  [/^\/(v1beta|upload|download)(\/|$)/, nativeErrorStyle],
  [/^\/v1\/models\/.*(:|%3a)/i, nativeErrorStyle],
];
