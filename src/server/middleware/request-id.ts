import type { RequestHandler } from "express";
import { REQUEST_ID_HEADER } from "../../contract/routes.ts";
import { holdsApiKey } from "../../kernel/hide-keys.ts";
import type { Ids } from "../../kernel/ids.ts";

const WELL_FORMED = /^[A-Za-z0-9._-]{1,128}$/;

/** Gives every response a request id: the caller's when it is well formed and not an API key, else a new one. */
export function requestId(ids: Ids): RequestHandler {
  return (request, response, next) => {
    const given = request.get(REQUEST_ID_HEADER);
    const isUsable = given !== undefined && WELL_FORMED.test(given) && !holdsApiKey(given);
    const id = isUsable ? given : ids.requestId();
    response.locals.requestId = id;
    response.setHeader(REQUEST_ID_HEADER, id);
    next();
  };
}
