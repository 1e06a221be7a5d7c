import type { RequestHandler } from "express";
import { routes } from "../../contract/routes.ts";
import { hideApiKeys } from "../../kernel/api-keys.ts";
import { onEnded } from "../connections/exchange.ts";
import type { ApiDeps } from "../deps.ts";

/**
 * A line for each answer, in the log and on the feed. The query is left out: it can hold a key. Questions whether the
 * service is alive come all the time, and are for `debug` alone.
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
      const isProbe = path === routes.health;
      if (!isProbe) feed.publish({ type: "request", line });
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

/** A query whose question mark was encoded or left out is a part of the path: the value behind a `=` is not shown. */
export function shownPath(path: string): string {
  return hideApiKeys(path.replace(/(=|%3d)[^/]+/gi, "$1…"));
}
