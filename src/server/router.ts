import { Router } from "express";
import type { HandlerDeps } from "./deps.ts";
import { methodNotAllowed } from "./middleware/errors.ts";
import type { Operation, Surface } from "./operation.ts";

/** The order of the methods in `Allow`. */
const METHODS = ["get", "head", "post", "delete"] as const;

/**
 * The routes of a surface: its operations, 405 with `Allow` for other methods of their paths, and its credential before
 * all of them. A path of none of them is passed on. `response.locals.route` is the path of the operation, as the table
 * has it.
 */
export function routerOf(surface: Surface, deps: HandlerDeps): Router {
  const router = Router({ caseSensitive: true, strict: true });
  const authenticate = surface.credential ? [surface.credential.authenticate(deps)] : [];
  if (surface.screen) router.use(surface.screen(deps));
  for (const path of new Set(surface.operations.map((operation) => operation.path))) {
    const operations = surface.operations.filter((operation) => operation.path === path);
    const route = router.route(expressPath(path));
    route.all(
      (_request, response, next) => {
        response.locals.route = path;
        next();
      },
      ...authenticate,
    );
    for (const { method, guards = [], handler } of operations) {
      route[method](...guards.map((guard) => guard(deps)), handler(deps));
    }
    route.all(methodNotAllowed(allowedMethods(operations)));
  }
  if (authenticate.length > 0) router.use(surface.prefix, ...authenticate);
  return router;
}

/** Express answers HEAD wherever there is a GET. */
function allowedMethods(operations: readonly Operation[]): string[] {
  const methods = new Set<string>(operations.map(({ method }) => method));
  if (methods.has("get")) methods.add("head");
  return METHODS.filter((method) => methods.has(method)).map((method) => method.toUpperCase());
}

/** `/a/{id}:verb` as Express writes it: `/a/:id\:verb`. */
function expressPath(path: string): string {
  return path.replaceAll(":", "\\:").replace(/\{(\w+)\}/g, ":$1");
}
