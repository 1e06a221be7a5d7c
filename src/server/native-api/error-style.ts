import { nativeErrorBody } from "../../contract/native-api/errors.ts";
import { batchErrorStyle } from "../batch-api/error-style.ts";
import type { ErrorStyle } from "../operation.ts";

const schema = { $ref: "#/components/schemas/NativeError" };

/** Errors as the native API writes them. Where the response is a stream that is one JSON array, so is the error. */
const nativeErrorStyle: ErrorStyle = {
  body(error, asked) {
    const body = nativeErrorBody(error);
    const isArray =
      asked?.request.path.endsWith(":streamGenerateContent") && asked.request.query.alt !== "sse";
    return isArray ? [body] : body;
  },
  schema: () => schema,
};

/** Two kinds of clients read the model list of `/v1`. A key in one of the vendor's headers marks a native client. */
const sharedErrorStyle: ErrorStyle = {
  body(error, asked) {
    const isNative = asked?.keyHeaders.some((name) => Boolean(asked.request.get(name))) ?? false;
    return (isNative ? nativeErrorStyle : batchErrorStyle).body(error, asked);
  },
  schema: () => ({ anyOf: [{ $ref: "#/components/schemas/Error" }, schema] }),
};

/** The error style of each path, the first match deciding. */
export const nativeErrorStyles: readonly (readonly [RegExp, ErrorStyle])[] = [
  [/^\/v1beta(\/|$)/, nativeErrorStyle],
  [/^\/v1\/models\/.*(:|%3a)/i, nativeErrorStyle],
  [/^\/v1\/models(\/|$)/, sharedErrorStyle],
];
