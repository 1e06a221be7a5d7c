import type { Request } from "express";
import { errorBody, type ImgbatchError } from "../../contract/errors.ts";
import { nativeErrorBody } from "../../contract/native-api/errors.ts";

/**
 * Whether an error is told the way of the native API: always below `/v1beta` and for its verbs. The model list of
 * `/v1` is for two kinds of clients; there the header of the key tells which one asks.
 */
export function isNativeStyle(request: Request, keyHeaders: readonly string[]): boolean {
  const [path = ""] = request.originalUrl.split("?");
  if (isNativePath(path)) return true;
  return /^\/v1\/models(\/|$)/.test(path) && keyHeaders.some((name) => Boolean(request.get(name)));
}

/** What the path alone tells. */
export function isNativePath(path: string): boolean {
  return /^\/v1beta(\/|$)/.test(path) || /^\/v1\/models\/.*(:|%3a)/i.test(path);
}

/**
 * Makes the body of an error, in the style that the request's client reads. A stream that is one JSON array is an
 * array then, too.
 */
export function errorBodies(keyHeaders: readonly string[]) {
  return (error: ImgbatchError, request: Request): object => {
    if (!isNativeStyle(request, keyHeaders)) return errorBody(error);
    const body = nativeErrorBody(error);
    const isArray = request.path.endsWith(":streamGenerateContent") && request.query.alt !== "sse";
    return isArray ? [body] : body;
  };
}
