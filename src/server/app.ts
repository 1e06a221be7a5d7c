import type { RequestListener } from "node:http";
import express, { type RequestHandler, type Router } from "express";
import { ImgbatchError } from "../contract/errors.ts";
import { consolePage } from "./console/page.ts";
import type { ApiDeps, HandlerDeps } from "./deps.ts";
import { refuseKeyInUrl } from "./http/authenticate.ts";
import { answerErrors } from "./http/errors.ts";
import { beginExchange } from "./http/exchange.ts";
import { readTarget, requireKnownHost } from "./http/host.ts";
import { createMetrics } from "./monitoring/metrics.ts";
import { monitoring } from "./monitoring/readiness.ts";
import { openApi } from "./openapi/document.ts";
import type { Operation, Surface } from "./operation.ts";
import { errorStyleOf, SURFACES } from "./surfaces.ts";

/** The whole HTTP side, in the order in which a request passes it. A worker takes no requests of callers. */
export function buildApp(deps: ApiDeps, { isWorker }: { isWorker: boolean }): RequestListener {
  const surfaces = isWorker ? [monitoring] : SURFACES;
  const metrics = createMetrics(deps);
  const handlerDeps = { ...deps, metrics, openApi: openApi(deps.limits) };
  const app = express();
  app.disable("etag");
  app.disable("x-powered-by");
  app.set("trust proxy", deps.server.trustProxy);
  app.use(beginExchange(deps, metrics));
  app.use(readTarget(deps), refuseKeyInUrl, requireKnownHost(deps.server));
  for (const surface of surfaces) app.use(routesOf(surface, handlerDeps));
  for (const handler of isWorker ? [] : consolePage(deps)) app.use(handler);
  const isOwner = (keyId: string | undefined) => keyId !== undefined && deps.isOwnerKey(keyId);
  app.use(
    () => {
      throw new ImgbatchError("NOT_FOUND");
    },
    answerErrors(deps.log, errorStyleOf, ({ locals }) => isOwner(locals.key?.id)),
  );
  return withPathTargets(app);
}

/**
 * Lets a listener see only targets that are a path. The host of an absolute target (`GET http://host/path`) takes the
 * place of the Host header (RFC 9112, section 3.2.2). A target of any other kind leaves a Host that is not well formed.
 */
function withPathTargets(listener: RequestListener): RequestListener {
  return (request, response) => {
    const target = request.url ?? "";
    if (!/^[/*]/.test(target)) {
      const [, host = target, rest = ""] = /^https?:\/\/([^/?#]*)(.*)$/i.exec(target) ?? [];
      request.headers.host = host;
      request.url = rest.startsWith("/") ? rest : `/${rest}`;
    }
    listener(request, response);
  };
}

/** The order of the methods in `Allow`. */
const METHODS = ["get", "head", "post", "delete"] as const;

/**
 * The router of a surface: its operations, 405 with `Allow` for other methods of their paths, and its credential before
 * all of them. A path of none of them is passed on. `response.locals.route` is the path of the operation, as the table
 * has it.
 */
export function routesOf(surface: Surface, deps: HandlerDeps): Router {
  const { credential, screen, prefix } = surface;
  const router = express.Router({ caseSensitive: true, strict: true });
  const authenticate = credential ? [credential.authenticate(deps)] : [];
  if (screen) router.use(screen(deps));
  for (const path of new Set(surface.operations.map((operation) => operation.path))) {
    const operations = surface.operations.filter((operation) => operation.path === path);
    const name: RequestHandler = (_request, response, next) => {
      response.locals.route = path;
      next();
    };
    const route = router.route(expressPath(path)).all(name, ...authenticate);
    // Express answers HEAD by the handler of GET where there is no other.
    for (const { method, guards = [], handler } of operations) {
      route[method](...[...guards, ...(surface.guards ?? []), handler].map((make) => make(deps)));
    }
    const allow = allowedMethods(operations).join(", ");
    route.all((_request, response) => {
      response.setHeader("Allow", allow);
      throw new ImgbatchError("METHOD_NOT_ALLOWED", `This path takes ${allow}.`);
    });
  }
  // Without a credential an unknown path of the surface is 401.
  if (authenticate.length > 0) router.use(prefix, ...authenticate);
  return router;
}

/** HEAD is answered wherever there is a GET. */
function allowedMethods(operations: readonly Operation[]): string[] {
  const methods = new Set<string>(operations.map(({ method }) => method));
  if (methods.has("get")) methods.add("head");
  return METHODS.filter((method) => methods.has(method)).map((method) => method.toUpperCase());
}

/** A path of the table, `/a/{id}:verb`, as Express writes it: `/a/:id\:verb`. */
function expressPath(path: string): string {
  return path.replace(/[:*!?()[\]+\\]/g, "\\$&").replace(/\{(\w+)\}/g, ":$1");
}
