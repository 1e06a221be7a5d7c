import type { RequestHandler } from "express";
import { Counter, Histogram, type Registry } from "prom-client";
import { onEnded } from "../connections/exchange.ts";

/** From a list of a few rows to a ZIP over a slow line. */
const SECONDS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120];
/** The label of requests that no operation matched. */
const OTHER_ROUTE = "other";
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/**
 * Counts responses and measures how long they took, by method, route and status; `aborted` when the caller went away.
 * The route is the path of the operation as the table has it, so that no id or name of a caller gets into a label.
 */
export function observeRequests(registry: Registry): RequestHandler {
  const total = new Counter({
    name: "imgbatch_http_requests_total",
    help: "Answered HTTP requests",
    labelNames: ["method", "route", "status"],
    registers: [registry],
  });
  const duration = new Histogram({
    name: "imgbatch_http_request_duration_seconds",
    help: "From the request's headers to the end of the answer",
    labelNames: ["method", "route"],
    buckets: SECONDS,
    registers: [registry],
  });
  return (request, response, next) => {
    const startedAt = performance.now();
    const method = METHODS.includes(request.method) ? request.method : "other";
    onEnded(response, (isWhole) => {
      const route = response.locals.route ?? OTHER_ROUTE;
      const status = isWhole ? String(response.statusCode) : "aborted";
      total.inc({ method, route, status });
      duration.observe({ method, route }, (performance.now() - startedAt) / 1000);
    });
    next();
  };
}
