import type { RequestHandler } from "express";
import type { HandlerDeps } from "./deps.ts";
import { methodNotAllowed } from "./middleware/errors.ts";
import { inOrder } from "./middleware/in-order.ts";
import type { Operation, Surface } from "./operation.ts";

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
