import { Router } from "express";
import { routes } from "../contract/routes.ts";
import type { ApiDeps } from "./deps.ts";
import type { Metrics } from "./metrics.ts";
import { methodNotAllowed } from "./middleware/errors.ts";
import { openApi } from "./openapi.ts";
import { METRICS_PATH, OPENAPI_PATH } from "./openapi-operations.ts";
import type { Readiness } from "./openapi-schemas.ts";

/** With less free space than this the service says that it is not ready: the images of a batch may not fit. */
export const MIN_FREE_DISK_BYTES = 100 * 1024 * 1024;

type OperationsDeps = Pick<
  ApiDeps,
  "stores" | "limits" | "instance" | "workersExpected" | "workersRunning" | "freeDiskBytes"
>;

/**
 * What operators ask: alive, ready to do work, numbers, and what the API is. No key is needed.
 * Rules: OPS-7, OPS-8.
 */
export function operationsRoutes(deps: OperationsDeps, metrics: Metrics): Router {
  const router = Router({ caseSensitive: true, strict: true });
  router.get(routes.health, (_request, response) => {
    response.json({ status: "ok", instance: deps.instance });
  });
  router.get(routes.ready, async (_request, response) => {
    const problems = await readinessProblems(deps);
    const isReady = problems.length === 0;
    const answer: Readiness = { status: isReady ? "ready" : "not_ready", problems };
    response.status(isReady ? 200 : 503).json(answer);
  });
  router.get(METRICS_PATH, metrics.answer);
  router.get(OPENAPI_PATH, openApi(deps.limits));
  router.all([routes.health, routes.ready, METRICS_PATH, OPENAPI_PATH], methodNotAllowed(["GET", "HEAD"]));
  return router;
}

/** Everything that keeps the service from working, in words that tell nothing about its machine. */
async function readinessProblems(deps: OperationsDeps): Promise<string[]> {
  const found = await Promise.all([databaseProblem(deps), diskProblem(deps), workersProblem(deps)]);
  return found.filter((problem) => problem !== null);
}

async function databaseProblem({ stores }: OperationsDeps): Promise<string | null> {
  try {
    await stores.write(async () => undefined);
    return null;
  } catch {
    return "the database cannot be written";
  }
}

async function diskProblem({ freeDiskBytes }: OperationsDeps): Promise<string | null> {
  try {
    const mib = MIN_FREE_DISK_BYTES / 1024 / 1024;
    return (await freeDiskBytes()) < MIN_FREE_DISK_BYTES
      ? `less than ${mib} MiB of disk space is free`
      : null;
  } catch {
    return "the free disk space cannot be read";
  }
}

function workersProblem({ workersExpected, workersRunning }: OperationsDeps): string | null {
  return workersExpected && !workersRunning() ? "the workers are not running" : null;
}
