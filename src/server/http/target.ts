import type { Request, RequestHandler } from "express";
import { FILE_VERBS, MODEL_VERBS } from "../../contract/routes.ts";
import { vendorKeyOf } from "./authenticate.ts";

/**
 * Reads other spellings of a path as the one in the table of operations, which has the native API once, below `/v1beta`:
 * paths below `/v1` when the vendor's key header is there (every other client on `/v1` is OpenAI's), verbs of models below
 * `/v1` in any case, `/upload/v1` and `/download/v1`. `/images/…` is `/v1/images/…`: some clients of OpenAI's API add the
 * version to their base URL, others do not.
 */
export function readTarget({ keyHeaders }: { keyHeaders: readonly string[] }): RequestHandler {
  return (request, _response, next) => {
    const isNative =
      vendorKeyOf(request, keyHeaders) === null ? /^\/v1\/(?=models\/[^?]*:)/ : /^\/v1\/(?!images\/)/;
    request.url = readColons(request)
      .replace(/^\/(download|upload)\/v1\//, "/$1/v1beta/")
      .replace(isNative, "/v1beta/")
      .replace(/^\/images\/(?=(?:generations|edits)(?:[/?]|$))/, "/v1/images/");
    next();
  };
}

const ENCODED_COLON =
  /^((?:\/download)?\/v1(?:beta)?\/(?:models|files|batches)\/[^?]*)%3a([^/?:%]*)(?=\?|$)/i;
const VERBS: readonly string[] = [...MODEL_VERBS, ...FILE_VERBS];

/**
 * Clients that encode every part of a path also encode the colon before the verb: `…/models/{model}%3AgenerateContent`.
 * Before a verb it is read as a colon. Elsewhere it stays a part of the model's id.
 */
function readColons({ method, url }: Request): string {
  return url.replace(ENCODED_COLON, (whole, path: string, verb: string) =>
    method === "POST" || VERBS.includes(verb) ? `${path}:${verb}` : whole,
  );
}
