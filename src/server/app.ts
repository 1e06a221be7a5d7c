import express, { type Express } from "express";
import { guardConnection } from "./connections/connection-guard.ts";
import { consolePage } from "./console/page.ts";
import type { ApiDeps } from "./deps.ts";
import { accessLog } from "./middleware/access-log.ts";
import { refuseKeyInUrl } from "./middleware/authenticate.ts";
import { answerErrors, notFound } from "./middleware/errors.ts";
import { requireKnownHost } from "./middleware/known-host.ts";
import { requestId } from "./middleware/request-id.ts";
import { sendJson } from "./middleware/send-json.ts";
import { createMetrics } from "./monitoring/metrics.ts";
import { readColons } from "./native-api/model-path.ts";
import { openApi } from "./openapi/document.ts";
import type { Surface } from "./operation.ts";
import { routerOf } from "./router.ts";
import { errorStyleOf, SURFACES } from "./surfaces.ts";

/** The whole HTTP side, in the order in which a request passes it. */
export function buildExpressApp(deps: ApiDeps, surfaces: readonly Surface[] = SURFACES): Express {
  const app = express();
  app.disable("x-powered-by");
  app.disable("etag");
  app.enable("case sensitive routing");
  app.enable("strict routing");
  app.set("trust proxy", deps.server.trustProxy);
  app.response.json = sendJson;
  app.use(requestId(deps.ids));
  app.use(readColons);
  app.use(accessLog(deps));
  const metrics = createMetrics(deps);
  const handlerDeps = { ...deps, metrics, openApi: openApi(deps.limits) };
  for (const { readPath } of surfaces) if (readPath) app.use(readPath(handlerDeps));
  app.use(metrics.observe);
  app.use(guardConnection);
  app.use(refuseKeyInUrl);
  app.use(requireKnownHost(deps.server));
  for (const surface of surfaces) app.use(routerOf(surface, handlerDeps));
  if (surfaces === SURFACES) for (const handler of consolePage(deps)) app.use(handler);
  app.use(notFound);
  app.use(answerErrors(deps.log, errorStyleOf));
  return app;
}
