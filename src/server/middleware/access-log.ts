import type { RequestHandler } from "express";
import { hideApiKeys } from "../../kernel/api-keys.ts";
import type { ApiDeps } from "../deps.ts";
import { onEnded } from "../exchange.ts";

/** A line for each answer, in the log and on the feed. The query is left out: it can hold a key. */
export function accessLog({ log, feed, clock }: Pick<ApiDeps, "log" | "feed" | "clock">): RequestHandler {
  return (request, response, next) => {
    const startedAt = performance.now();
    const { method, path } = request;
    onEnded(response, (isWhole) => {
      const status = response.statusCode;
      const durationMs = Math.round(performance.now() - startedAt);
      const key = response.locals.key?.prefix ?? null;
      const line = { atMs: clock.nowMs(), method, path: hideApiKeys(path), status, durationMs, key };
      feed.publish({ type: "request", line });
      log.info("request", {
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
