import type { RequestHandler } from "express";
import { PATHS, REQUEST_ID_HEADER } from "../../contract/routes.ts";
import { OPERATOR } from "../../domain/accounts.ts";
import { hideApiKeys, holdsApiKey } from "../../kernel/hide-keys.ts";
import type { Ids } from "../../kernel/ids.ts";
import type { ApiDeps } from "../deps.ts";
import { onEnded } from "./exchange.ts";

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

/**
 * Writes a line for each response to the log and the feed. The query is left out: it can hold a key. Health checks come
 * all the time, so they are logged at `debug` only.
 */
export function accessLog({
  requestLog,
  feed,
  clock,
}: Pick<ApiDeps, "requestLog" | "feed" | "clock">): RequestHandler {
  return (request, response, next) => {
    const startedAt = performance.now();
    const { method } = request;
    const path = shownPath(request.path);
    onEnded(response, (isWhole) => {
      const status = response.statusCode;
      const durationMs = Math.round(performance.now() - startedAt);
      const key = response.locals.key?.prefix ?? null;
      const line = { atMs: clock.nowMs(), method, path, status, durationMs, key };
      const isProbe = path === PATHS.health;
      if (!isProbe && response.locals.key !== OPERATOR) feed.publish({ type: "request", line });
      requestLog[isProbe ? "debug" : "info"]("request", {
        method,
        path,
        status,
        ms: durationMs,
        request_id: response.locals.requestId,
        ...(isWhole ? {} : { aborted: true }),
      });
    });
    next();
  };
}

/**
 * Hides values behind a `=`: a query whose question mark is encoded or missing is a part of the path. Hides the names of
 * images that can be fetched without a key, too.
 */
export function shownPath(path: string): string {
  return hideApiKeys(path.replace(/(=|%3d)[^/]+/gi, "$1…").replace(/^(\/v1\/images\/outputs\/).+/, "$1…"));
}
