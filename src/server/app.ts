import type { RequestListener } from "node:http";
import express, { type Request, type RequestHandler, type Router } from "express";
import { ImgbatchError } from "../contract/errors.ts";
import { consolePage } from "./console/page.ts";
import type { ApiDeps, HandlerDeps } from "./deps.ts";
import { refuseKeyInUrl } from "./http/authenticate.ts";
import { answerErrors } from "./http/errors.ts";
import { beginExchange } from "./http/exchange.ts";
import { publicUrlOf, readTarget, requireKnownHost } from "./http/host.ts";
import { createMetrics } from "./monitoring/metrics.ts";
import { monitoring } from "./monitoring/readiness.ts";
import { openApi } from "./openapi/document.ts";
import type { Operation, Surface } from "./operation.ts";
import { errorStyleOf, OPERATIONS, SURFACES } from "./surfaces.ts";
import { followRequests, meetFaults, testApi } from "./testing/operations.ts";

/** The whole HTTP side, in the order in which a request passes it. A worker takes no requests of callers. */
export function buildApp(deps: ApiDeps, { isWorker }: { isWorker: boolean }): RequestListener {
  const { testBench } = deps;
  const surfaces = isWorker
    ? [monitoring]
    : SURFACES.filter(({ isForTests }) => !isForTests || testBench !== null);
  const metrics = createMetrics(deps);
  const handlerDeps = { ...deps, metrics, openApi: openApi(deps.limits) };
  const app = express();
  app.disable("etag");
  app.disable("x-powered-by");
  app.set("trust proxy", deps.server.trustProxy);
  app.use(beginExchange(deps, metrics));
  app.use(readTarget(deps), refuseKeyInUrl, requireKnownHost(deps.server));
  const { corsOrigins = [] } = deps.server;
  if (corsOrigins.length > 0) app.use(allowOrigins(corsOrigins));
  if (testBench !== null) app.use(followRequests(testBench));
  for (const surface of surfaces) app.use(routesOf(surface, handlerDeps));
  for (const handler of isWorker ? [] : consolePage(deps)) app.use(handler);
  app.use(
    (request: Request) => {
      throw notFound(deps, request);
    },
    answerErrors(
      deps.log,
      (path) => errorStyleOf(meantPath(path) ?? path),
      ({ locals }) => locals.scope?.isOwner ?? false,
    ),
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
    request.url = servedTarget(request.url ?? "");
    listener(request, response);
  };
}

/** The paths that pages of other origins may call: never those of the console. */
const FOR_PAGES =
  /^\/(?:v1\/)?(?:images\/|responses(?:\/|$))|^\/(?:upload\/)?v1beta(?:\/|$)|^\/v1\/models(?:\/|$)/;

/** Lets pages of these origins read the answers of `FOR_PAGES` (Fetch standard, CORS protocol). A page sends its key itself. */
function allowOrigins(origins: readonly string[]): RequestHandler {
  return (request, response, next) => {
    if (!FOR_PAGES.test(request.path)) return next();
    response.vary("Origin");
    const origin = request.get("origin");
    if (origin === undefined || !origins.includes(origin)) return next();
    response.setHeader("Access-Control-Allow-Origin", origin);
    response.setHeader("Access-Control-Expose-Headers", "*");
    const isPreflight =
      request.method === "OPTIONS" && request.get("access-control-request-method") !== undefined;
    if (!isPreflight) return next();
    response.setHeader("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE");
    const asked = request.get("access-control-request-headers") ?? "";
    if (/^[\w, -]+$/.test(asked)) response.setHeader("Access-Control-Allow-Headers", asked);
    response.setHeader("Access-Control-Max-Age", "600");
    response.status(204).end();
  };
}

/**
 * Addresses that clients build from base URLs with a version too many or too few, and what they mean here: one after the other.
 * Google's libraries add `/v1beta` to the base URL, OpenAI's add nothing, and people write either address with and without.
 */
const ALIASES: readonly (readonly [RegExp, string])[] = [
  [/^(?:\/v1(?:beta|alpha)?)+(?=\/(?:(?:upload|download)\/)?v1(?:beta|alpha)?(?:\/|$))/, ""],
  [/^\/v1(?:beta|alpha)\/openai(?=\/)/, "/v1"],
  [/^(\/upload|\/download)?\/v1alpha(?=\/|$)/, "$1/v1beta"],
  [/^(?=\/(?:images\/(?:generations|edits|outputs)|responses|files|batches|models)(?:\/|$))/, "/v1"],
  [/^(?=\/interactions(?:\/|$))/, "/v1beta"],
];

/** Returns the target under which the service has what a request means. Several slashes in a row count as one. */
function servedTarget(target: string): string {
  const [, path = "", rest = ""] = /^([^?#]*)(.*)$/s.exec(target) ?? [];
  const single = path.replace(/\/{2,}/g, "/");
  return ALIASES.reduce((served, [form, meant]) => served.replace(form, meant), single) + rest;
}

/** Beginnings that a wrong base URL makes: a folder before the version, Google's version before OpenAI's paths. */
const WRONG_BASES = /^(?:\/(?:openai|api))+(?=\/v1(?:beta)?\/)|^\/v1beta(?=\/images\/|\/chat\/)/;

/** Returns the path that a caller has missed by its base URL or by a last slash; null when there is none. */
function meantPath(path: string): string | null {
  const bare = path.replace(/(?<=.)\/$/, "");
  const base = bare.replace(WRONG_BASES, bare.startsWith("/v1beta/images/") ? "/v1" : "");
  return base !== path && FORMS.some((form) => form.test(base)) ? base : null;
}

const FORMS = OPERATIONS.map(
  ({ path }) => new RegExp(`^${path.replace(/[.*+?^$()|[\]\\]/g, "\\$&").replace(/\{\w+\}/g, "[^/:]+")}$`),
);

/** The error of a path that nothing has. It names the base URL that leads to what was meant. */
function notFound(deps: ApiDeps, request: Request): ImgbatchError {
  if (request.path.startsWith(`${testApi.prefix}/`)) {
    const message = "Faults and the journal are there in `imgbatch exec` and `imgbatch serve --test` alone.";
    return new ImgbatchError("NOT_FOUND", message);
  }
  const meant = meantPath(request.path);
  if (meant === null) return new ImgbatchError("NOT_FOUND");
  const base = `${publicUrlOf(deps, request)}${meant.startsWith("/v1/") ? "/v1" : ""}`;
  const message = `There is nothing at this path. ${meant} is there: the base URL of the client is ${base}`;
  return new ImgbatchError("NOT_FOUND", message);
}

/** The order of the methods in `Allow`. */
const METHODS = ["get", "head", "post", "delete"] as const;

/**
 * The router of a surface: its operations, 405 with `Allow` for other methods of their paths, and its credential before
 * all of them. A path of none of them is passed on. `response.locals.route` is the path of the operation, as the table
 * has it.
 */
export function routesOf(surface: Surface, deps: HandlerDeps): Router {
  const { credential, screen, prefix, vendor } = surface;
  const router = express.Router({ caseSensitive: true, strict: true });
  const authenticate = credential ? [credential.authenticate(deps)] : [];
  const faults = vendor !== null && deps.testBench !== null ? [meetFaults(vendor, deps)] : [];
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
      const handlers = [...guards, ...(surface.guards ?? []), handler].map((make) => make(deps));
      route[method](...faults, ...handlers);
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
