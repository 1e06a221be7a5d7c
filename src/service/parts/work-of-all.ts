import { isTerminal } from "../../contract/statuses.ts";
import { waitingFor } from "../../domain/health/waiting.ts";
import { isAtWork, showJob } from "../../domain/jobs/job-rules.ts";
import type { ApiDeps } from "../../server/deps.ts";
import type { WorkerDeps } from "../../workers/deps.ts";

/**
 * Reads from the database what the workers of all processes do. This process may have nothing to do with a batch. The
 * processes of a service have the same configuration.
 */
export function workOfAll({
  stores,
  offers,
  health,
  providers,
  clock,
}: WorkerDeps): Pick<ApiDeps, "waitingOf" | "jobsOf" | "queueOfAll"> {
  const slots = providers.reduce((sum, { concurrency }) => sum + concurrency, 0);
  const hasJobs = new Set(providers.flatMap(({ kind, name }) => (kind === "job" ? [name] : [])));
  return {
    waitingOf: (batch) => {
      const { status, waitingSinceMs, waiting } = batch;
      // A job may be at work at an upstream that cannot be asked for it.
      const mayWait = waitingSinceMs !== null || (status === "running" && hasJobs.has(batch.provider));
      if (isTerminal(status) || !mayWait) return null;
      const able = offers.forBatch(batch);
      const known = waitingFor(able.map((each) => health.knownBlockOf(each.provider, each.executedModel)));
      if (known !== null) return known;
      const isOver =
        waitingSinceMs === null || (waiting?.untilMs ?? Number.POSITIVE_INFINITY) <= clock.nowMs();
      return isOver ? null : waiting;
    },
    jobsOf: async (batch) => {
      if (isTerminal(batch.status) || !hasJobs.has(batch.provider)) return [];
      const jobs = await stores.read.upstreamJobs.ofBatch(batch.id);
      return jobs.filter(isAtWork).map(showJob);
    },
    queueOfAll: async () => {
      const workers = (await stores.read.workers.list()).filter(({ role }) => role !== "api");
      const slotsOfAll = slots * workers.length;
      return {
        // An item is claimed before it has a slot.
        running: Math.min(await stores.read.items.countLeased(), slotsOfAll),
        slots: slotsOfAll,
        isPaused: workers.length > 0 && workers.every(({ isPaused }) => isPaused),
      };
    },
  };
}
