import express, { type Express } from "express";
import { routes } from "../contract/routes.ts";
import { batchRoutes } from "./batch-api/routes.ts";
import { guardConnection } from "./connections/connection-guard.ts";
import type { ApiDeps } from "./deps.ts";
import { accessLog } from "./middleware/access-log.ts";
import { refuseKeyInUrl } from "./middleware/authenticate.ts";
import { errorBodies } from "./middleware/error-style.ts";
import { answerErrors, notFound } from "./middleware/errors.ts";
import { requireKnownHost } from "./middleware/known-host.ts";
import { requestId } from "./middleware/request-id.ts";
import { operationsRoutes } from "./monitoring/health.ts";
import { createMetrics } from "./monitoring/metrics.ts";
import { readColons } from "./native-api/model-path.ts";
import { nativeRoutes } from "./native-api/routes.ts";

/** The whole HTTP side, in the order in which a request passes it. */
export function buildExpressApp(deps: ApiDeps): Express {
  const app = express();
  app.disable("x-powered-by");
  app.disable("etag");
  app.enable("case sensitive routing");
  app.enable("strict routing");
  app.set("trust proxy", deps.server.trustProxy);
  app.use(requestId(deps.ids));
  app.use(readColons);
  app.use(accessLog(deps));
  const metrics = createMetrics(deps);
  app.use(metrics.observe);
  app.use(guardConnection);
  app.use(refuseKeyInUrl);
  app.use(requireKnownHost(deps.server));
  app.use(operationsRoutes(deps, metrics));
  // A router would take its mount path with a trailing slash for the path itself.
  app.all([`${routes.batches}/`, `${routes.nativeModels}/`, `${routes.sharedModels}/`], notFound);
  app.use(routes.batches, batchRoutes(deps));
  app.use(nativeRoutes(deps));
  app.use(notFound);
  app.use(answerErrors(deps.log, errorBodies(deps.keyHeaders)));
  return app;
}
