import type { RequestHandler } from "express";
import type { Log } from "../../kernel/log.ts";

/** A line for each answer. The query is left out: it can hold a key. */
export function accessLog(log: Log): RequestHandler {
  return (request, response, next) => {
    const startedAt = performance.now();
    const { method, path } = request;
    response.on("close", () => {
      log.info("request", {
        method,
        path,
        status: response.statusCode,
        ms: Math.round(performance.now() - startedAt),
        request_id: response.locals.requestId,
        ...(response.writableFinished ? {} : { aborted: true }),
      });
    });
    next();
  };
}
