import { Router } from "express";
import { CHALLENGE, ownershipProof } from "../../contract/data-directory.ts";
import { routes } from "../../contract/routes.ts";
import { systemClock } from "../../kernel/clock.ts";
import { invalidQuery, queryText } from "../batch-api/query.ts";
import type { ApiDeps } from "../deps.ts";
import { methodNotAllowed } from "../middleware/errors.ts";
import { openApi } from "../openapi/document.ts";
import { METRICS_PATH, OPENAPI_PATH } from "../openapi/operations.ts";
import type { Readiness } from "../openapi/schemas.ts";
import type { Metrics } from "./metrics.ts";

/** With less free space than this the service says that it is not ready: the images of a batch may not fit. */
export const MIN_FREE_DISK_BYTES = 100 * 1024 * 1024;

type OperationsDeps = Pick<
  ApiDeps,
  "stores" | "limits" | "secret" | "workersExpected" | "workersRunning" | "freeDiskBytes"
>;

/** So long one look at the database serves everybody who asks: each is a write, and no key is needed to ask. */
const PROBE_EVERY_MS = 1000;

/** What operators ask: alive, ready to do work, numbers, and what the API is. No key is needed. */
export function operationsRoutes(deps: OperationsDeps, metrics: Metrics): Router {
  const databaseProblem = probing(deps);
  const router = Router({ caseSensitive: true, strict: true });
  router.get(routes.health, (request, response) => {
    const challenge = queryText(request, "challenge");
    if (challenge === undefined) return void response.json({ status: "ok" });
    if (!CHALLENGE.test(challenge))
      throw invalidQuery("challenge", "must be 32 to 128 of the characters A-Z, a-z, 0-9, _ and -");
    // The port that the question came in on, whatever its headers claim.
    const proof = ownershipProof(deps.secret, challenge, request.socket.localPort ?? 0);
    response.json({ status: "ok", proof });
  });
  router.get(routes.ready, async (_request, response) => {
    const problems = await readinessProblems(deps, databaseProblem);
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
async function readinessProblems(
  deps: OperationsDeps,
  databaseProblem: () => Promise<string | null>,
): Promise<string[]> {
  const found = await Promise.all([databaseProblem(), diskProblem(deps), workersProblem(deps)]);
  return found.filter((problem) => problem !== null);
}

function probing({ stores }: OperationsDeps): () => Promise<string | null> {
  let last: { atMs: number; problem: Promise<string | null> } | null = null;
  return () => {
    const nowMs = systemClock.monotonicMs();
    if (last === null || nowMs - last.atMs >= PROBE_EVERY_MS) {
      const problem = stores
        .write((tx) => tx.touch())
        .then(
          () => null,
          () => "the database cannot be written",
        );
      last = { atMs: nowMs, problem };
    }
    return last.problem;
  };
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
