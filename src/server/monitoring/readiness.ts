import { setTimeout as pause } from "node:timers/promises";
import type { RequestHandler } from "express";
import { ownershipProof } from "../../contract/data-directory.ts";
import { PATHS } from "../../contract/routes.ts";
import { systemClock } from "../../kernel/clock.ts";
import type { ApiDeps } from "../deps.ts";
import { readQuery } from "../http/parameters.ts";
import type { Surface } from "../operation.ts";

/** `GET /healthz`: the service is alive. With a challenge it also proves that it owns its data directory. */
function health({ secret }: Pick<ApiDeps, "secret">): RequestHandler {
  return (request, response) => {
    const challenge = readQuery(request, "Challenge");
    if (challenge === undefined) return void response.json({ status: "ok" });
    // The port that the request came in on, whatever its headers claim.
    const proof = ownershipProof(secret, challenge, request.socket.localPort ?? 0);
    response.json({ status: "ok", proof });
  };
}

/** With less free space than this the service is not ready: the images of a batch may not fit. */
const MIN_FREE_DISK_BYTES = 100 * 1024 * 1024;

/** Database and bucket are probed at most this often: each probe is a write or a request, and asking needs no key. */
const PROBE_EVERY_MS = 1000;
/** The caller has an answer by then, even if the database or the bucket gives none. */
const PATIENCE_MS = 3000;

type ReadinessDeps = Pick<
  ApiDeps,
  "stores" | "hasWorkers" | "workersRunning" | "features" | "freeDiskBytes" | "askBucket" | "isStopping"
>;

/** Returns a problem, or null. */
type Probe = () => Promise<string | null>;

/** What a service may be ready for besides its answers. */

/**
 * `GET /readyz`: whether the process can answer requests for what there is, and with `for=work`, whether new batches are
 * taken, too; and what keeps it from that.
 */
function readiness(deps: ReadinessDeps): RequestHandler {
  const { stores, askBucket } = deps;
  const probes = [
    probing("the database cannot be written", () => stores.write((tx) => tx.touch())),
    ...(askBucket === null ? [] : [probing("the bucket of the images cannot be used", askBucket)]),
  ];
  return async (request, response) => {
    const isForWork = readQuery(request, "ReadyFor") === "work";
    const problems = await readinessProblems(deps, [...probes, async () => workersProblem(deps, isForWork)]);
    const isReady = problems.length === 0;
    response.status(isReady ? 200 : 503).json({ status: isReady ? "ready" : "not_ready", problems });
  };
}

/** Everything that keeps the service from working, in words that reveal nothing about its machine. */
async function readinessProblems(deps: ReadinessDeps, probes: readonly Probe[]): Promise<string[]> {
  if (deps.isStopping()) return ["the service is stopping"];
  const found = await Promise.all([...probes.map((probe) => probe()), diskProblem(deps)]);
  return found.filter((problem) => problem !== null);
}

/** A probe without an answer is not followed by another one: each holds a connection. */
function probing(trouble: string, ask: () => Promise<unknown>): Probe {
  let isAsking = false;
  let last: { atMs: number; problem: Promise<string | null> } | null = null;
  return () => {
    const nowMs = systemClock.monotonicMs();
    if (last === null || (!isAsking && nowMs - last.atMs >= PROBE_EVERY_MS)) {
      isAsking = true;
      const answer = ask()
        .then(
          () => null,
          () => trouble,
        )
        .finally(() => {
          isAsking = false;
        });
      last = {
        atMs: nowMs,
        problem: Promise.race([answer, pause(PATIENCE_MS, trouble, { ref: false })]),
      };
    }
    return last.problem;
  };
}

async function diskProblem({ freeDiskBytes }: ReadinessDeps): Promise<string | null> {
  try {
    const mib = MIN_FREE_DISK_BYTES / 1024 / 1024;
    return (await freeDiskBytes()) < MIN_FREE_DISK_BYTES
      ? `less than ${mib} MiB of disk space is free`
      : null;
  } catch {
    return "the free disk space cannot be read";
  }
}

/** Without workers, another process than theirs still serves status, images and lists. */
function workersProblem(
  { hasWorkers, workersRunning, features }: ReadinessDeps,
  isForWork: boolean,
): string | null {
  const areNeeded = hasWorkers || (isForWork && !features.acceptWithoutWorkers);
  return areNeeded && !workersRunning() ? "the workers are not running" : null;
}

/** Operations for the people and programs that run the service. They need no key. */
export const monitoring: Surface = {
  tag: "operations",
  vendor: null,
  prefix: "/",
  credential: null,
  operations: [
    {
      id: "getHealth",
      method: "get",
      path: PATHS.health,
      summary: "The service is alive",
      parameters: ["Challenge"],
      answers: { 200: { description: "It is.", schema: "Health" } },
      errors: ["BATCH_IMAGE_INVALID_QUERY"],
      handler: health,
    },
    {
      id: "getReadiness",
      method: "get",
      path: PATHS.ready,
      summary: "The service is ready: to answer, and to take work",
      parameters: ["ReadyFor"],
      answers: {
        200: { description: "It is.", schema: "Readiness" },
        503: { description: "The service is not ready; `problems` has the reasons.", schema: "Readiness" },
      },
      errors: ["BATCH_IMAGE_INVALID_QUERY"],
      handler: readiness,
    },
    {
      id: "getMetrics",
      method: "get",
      path: PATHS.metrics,
      summary: "Numbers for monitoring, in the Prometheus text format",
      answers: { 200: { description: "The numbers.", bytes: ["text/plain"] } },
      handler: ({ metrics }) => metrics.answer,
    },
    {
      id: "getOpenApi",
      method: "get",
      path: PATHS.openApi,
      summary: "This description",
      answers: { 200: { description: "An OpenAPI 3.1 document.", schema: "OpenApi" } },
      handler: ({ openApi }) => openApi,
    },
  ],
};
