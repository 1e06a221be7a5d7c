import { Router } from "express";
import { routes } from "../contract/routes.ts";
import type { ApiDeps } from "./deps.ts";
import { methodNotAllowed } from "./middleware/errors.ts";

/** What operators ask: alive, and ready to do work. No key is needed. */
export function operationsRoutes(deps: ApiDeps): Router {
  const router = Router({ caseSensitive: true, strict: true });
  router.get(routes.health, (_request, response) => {
    response.json({ status: "ok", instance: deps.instance });
  });
  router.get(routes.ready, async (_request, response) => {
    const problems = await readinessProblems(deps);
    response.status(problems.length === 0 ? 200 : 503);
    response.json({ status: problems.length === 0 ? "ready" : "not_ready", problems });
  });
  router.all([routes.health, routes.ready], methodNotAllowed(["GET", "HEAD"]));
  return router;
}

async function readinessProblems(deps: ApiDeps): Promise<string[]> {
  try {
    await deps.stores.write(() => undefined);
  } catch {
    return ["the database cannot be written"];
  }
  return deps.workersExpected && !deps.workersRunning() ? ["the workers are not running"] : [];
}
