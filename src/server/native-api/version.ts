import type { RequestHandler } from "express";
import { vendorKeyOf } from "./authenticate.ts";

/**
 * The table of operations has the native API once, below `/v1beta`. Here its other paths are read as those: the ones
 * below `/v1` when the vendor's key header is there (every other client on `/v1` is OpenAI's), verbs of models below `/v1`
 * in any case, `/upload/v1` and `/download/v1`.
 */
export function readVersion({ keyHeaders }: { keyHeaders: readonly string[] }): RequestHandler {
  return (request, _response, next) => {
    request.url = nativeUrl(request.url, vendorKeyOf(request, keyHeaders) !== null);
    next();
  };
}

/** The URL of a request as the table of operations has it. */
export function nativeUrl(url: string, hasVendorKey: boolean): string {
  const isNative = hasVendorKey ? /^\/v1\/(?!images\/)/ : /^\/v1\/(?=models\/[^?]*:)/;
  return url.replace(/^\/(download|upload)\/v1\//, "/$1/v1beta/").replace(isNative, "/v1beta/");
}
