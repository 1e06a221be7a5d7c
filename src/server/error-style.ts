import type { Request } from "express";
import { errorBody, type ImgbatchError } from "../contract/errors.ts";
import { nativeErrorBody } from "../contract/native-errors.ts";

/**
 * Whether an error is told the way of the native API: always below `/v1beta` and for its verbs. The model list of
 * `/v1` is for two kinds of clients; there the header of the key tells which one asks.
 * Rules: RT-2, RT-3.
 */
export function isNativeStyle(request: Request, keyHeaders: readonly string[]): boolean {
  const [path = ""] = request.originalUrl.split("?");
  if (/^\/v1beta(\/|$)/.test(path)) return true;
  if (!/^\/v1\/models(\/|$)/.test(path)) return false;
  return path.includes(":") || keyHeaders.some((name) => Boolean(request.get(name)));
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
