import { IncomingMessage, type RequestListener, type ServerOptions, ServerResponse } from "node:http";
import express, { type Request, type RequestHandler, type Response } from "express";
import { consolePage } from "./console/page.ts";
import type { ApiDeps, HandlerDeps } from "./deps.ts";
import { accessLog, requestId } from "./http/access-log.ts";
import { refuseKeyInUrl } from "./http/authenticate.ts";
import { answerErrors, methodNotAllowed, notFound } from "./http/errors.ts";
import { finishExchange } from "./http/exchange.ts";
import { requireKnownHost } from "./http/host.ts";
import { createMetrics } from "./monitoring/metrics.ts";
import { readColons } from "./native-api/paths.ts";
import { openApi } from "./openapi/document.ts";
import type { Operation, Surface } from "./operation.ts";
import { errorStyleOf, SURFACES } from "./surfaces.ts";

/** The HTTP side of a server. The server must be made with the options in `http`. */
interface App {
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

/** The order of the methods in `Allow`. */
const METHODS = ["get", "head", "post", "delete"] as const;

/**
 * The routes of a surface: its operations, 405 with `Allow` for other methods of their paths, and its credential before
 * all of them. A path of none of them is passed on. `response.locals.route` is the path of the operation, as the table
 * has it.
 */
export function routesOf(surface: Surface, deps: HandlerDeps): RequestHandler {
  const { credential, screen, prefix } = surface;
  const authenticate = credential ? [credential.authenticate(deps)] : [];
  const paths = [...new Set(surface.operations.map(({ path }) => path))].map((path) => {
    const operations = surface.operations.filter((operation) => operation.path === path);
    const handlers = new Map<string, RequestHandler>();
    for (const { method, guards = [], handler } of operations) {
      const own = guards.map((guard) => guard(deps));
      handlers.set(method.toUpperCase(), inOrder([...authenticate, ...own, handler(deps)]));
    }
    const [get, head] = [handlers.get("GET"), handlers.get("HEAD")];
    if (get && !head) handlers.set("HEAD", get);
    const refuse = inOrder([...authenticate, methodNotAllowed(allowedMethods(operations))]);
    return { path, pattern: patternOf(path), handlers, refuse };
  });
  const refuseUnknown = inOrder(authenticate);
  const route: RequestHandler = (request, response, next) => {
    for (const { path, pattern, handlers, refuse } of paths) {
      const match = pattern.exec(request.path);
      if (match === null) continue;
      request.params = decoded(match.groups);
      response.locals.route = path;
      (handlers.get(request.method) ?? refuse)(request, response, next);
      return;
    }
    if (`${request.path}/`.startsWith(`${prefix}/`)) refuseUnknown(request, response, next);
    else next();
  };
  return screen ? inOrder([screen(deps), route]) : route;
}

/** HEAD is answered wherever there is a GET. */
function allowedMethods(operations: readonly Operation[]): string[] {
  const methods = new Set<string>(operations.map(({ method }) => method));
  if (methods.has("get")) methods.add("head");
  return METHODS.filter((method) => methods.has(method)).map((method) => method.toUpperCase());
}

/** Matches the paths that the table writes as `/a/{id}:verb`. */
function patternOf(path: string): RegExp {
  const literal = path.replace(/[.*+?^$()|[\]\\]/g, "\\$&");
  return new RegExp(`^${literal.replace(/\{(\w+)\}/g, "(?<$1>[^/]+)")}$`);
}

/** Throws `URIError` for a part that is not well encoded. */
function decoded(parts: Record<string, string> = {}): Record<string, string> {
  return Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, decodeURIComponent(part)]));
}

/**
 * Returns one handler that runs others in order, as Express does. Each passes the request on by `next`. An error stops
 * them, whether it is thrown, rejected or given to `next`; a rejection without a reason counts as one. The router of
 * Express is not used: it compares the path before each handler, which takes longer than reading a batch.
 */
export function inOrder(handlers: readonly RequestHandler[]): RequestHandler {
  return (request, response, next) => {
    let at = 0;
    // Without an error, `next` would pass the request on.
    const fail = (reason: unknown) => next(reason || new Error(`a handler failed with ${String(reason)}`));
    const pass = (error?: unknown) => {
      const handler = error ? undefined : handlers[at++];
      if (handler === undefined) return next(error);
      try {
        const done: unknown = handler(request, response, pass);
        if (done instanceof Promise) done.catch(fail);
      } catch (thrown) {
        fail(thrown);
      }
    };
    pass();
  };
}

/** Options of a server. */
type ExchangeClasses = Pick<ServerOptions, "IncomingMessage" | "ServerResponse">;

/**
 * Classes of requests and responses that have the methods of Express from the start. Express itself would change the
 * prototype of each object, which discards all that the engine has learned about its properties. The router of Express
 * is not used.
 */
function exchangeClasses({ trustProxy }: Pick<ApiDeps["server"], "trustProxy">): ExchangeClasses {
  const app = express();
  app.disable("etag");
  app.set("trust proxy", trustProxy);
  app.response.json = sendJson;
  class ServedRequest extends IncomingMessage {
    res: Response | undefined = undefined;
    originalUrl = "";
    params = {};
  }
  class ServedResponse extends ServerResponse {
    readonly locals = {};
  }
  Object.setPrototypeOf(ServedRequest.prototype, app.request);
  Object.setPrototypeOf(ServedResponse.prototype, app.response);
  return { IncomingMessage: ServedRequest, ServerResponse: ServedResponse as typeof ServerResponse };
}

/**
 * Answers with a value as JSON, in place of `response.json` of Express: that one also looks for an entity tag, a charset
 * and a body that the status forbids, which no JSON of this service has.
 */
function sendJson(this: Response, value: unknown): Response {
  const text = JSON.stringify(value);
  this.setHeader("Content-Type", "application/json; charset=utf-8");
  this.setHeader("Content-Length", Buffer.byteLength(text));
  // Node leaves out the body of a response to HEAD.
  return this.end(text);
}
