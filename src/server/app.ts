import type { RequestListener } from "node:http";
import type { Request, Response } from "express";
import { finishExchange } from "./connections/finish-exchange.ts";
import { consolePage } from "./console/page.ts";
import type { ApiDeps } from "./deps.ts";
import { accessLog } from "./middleware/access-log.ts";
import { refuseKeyInUrl } from "./middleware/authenticate.ts";
import { answerErrors, notFound } from "./middleware/errors.ts";
import { type ExchangeClasses, exchangeClasses } from "./middleware/exchange-classes.ts";
import { inOrder } from "./middleware/in-order.ts";
import { requireKnownHost } from "./middleware/known-host.ts";
import { requestId } from "./middleware/request-id.ts";
import { createMetrics } from "./monitoring/metrics.ts";
import { readColons } from "./native-api/model-path.ts";
import { openApi } from "./openapi/document.ts";
import type { Surface } from "./operation.ts";
import { routesOf } from "./router.ts";
import { errorStyleOf, SURFACES } from "./surfaces.ts";

/** The HTTP side of a server. The server must be made with the options in `http`. */
export interface App {
  listener: RequestListener;
  http: ExchangeClasses;
}

/** The whole HTTP side, in the order in which a request passes it. */
export function buildApp(deps: ApiDeps, surfaces: readonly Surface[] = SURFACES): App {
  const metrics = createMetrics(deps);
  const handlerDeps = { ...deps, metrics, openApi: openApi(deps.limits) };
  const handle = inOrder([
    requestId(deps.ids),
    readColons,
    accessLog(deps),
    ...surfaces.flatMap(({ readPath }) => (readPath ? [readPath(handlerDeps)] : [])),
    metrics.observe,
    finishExchange(deps),
    refuseKeyInUrl,
    requireKnownHost(deps.server),
    ...surfaces.map((surface) => routesOf(surface, handlerDeps)),
    ...(surfaces === SURFACES ? consolePage(deps) : []),
    notFound,
  ]);
  const fail = answerErrors(deps.log, errorStyleOf, ({ locals }) => {
    return locals.key !== undefined && deps.isOwnerKey(locals.key.id);
  });
  const listener = (request: Request, response: Response) => {
    request.res = response;
    request.originalUrl = request.url;
    handle(request, response, (error) => fail(error, request, response, () => {}));
  };
  return { listener: listener as RequestListener, http: exchangeClasses(deps.server) };
}
