import { EVERY_MODEL } from "../../domain/health/transitions.ts";
import { CLOCK_SLACK_MS, FORGOTTEN_MS } from "../../domain/jobs/job-rules.ts";
import type { JobProvider, UpstreamJob } from "../../domain/ports/image-provider.ts";
import type { WorkerDeps } from "../deps.ts";

const LOOK_EVERY_MS = 3_600_000;

/** Jobs at an upstream that no record names. They may be another machine's, and are left alone. */
export class ForeignJobs {
  readonly #deps: WorkerDeps;
  readonly #provider: JobProvider;
  readonly #stopping: AbortSignal;
  #lookedMs = Number.NEGATIVE_INFINITY;

  constructor(deps: WorkerDeps, provider: JobProvider, stopping: AbortSignal) {
    this.#deps = deps;
    this.#provider = provider;
    this.#stopping = stopping;
  }

  /** Looks for them, once an hour at most. A failure does not matter. */
  async look(): Promise<void> {
    const { clock, log, health } = this.#deps;
    const nowMs = clock.nowMs();
    if (nowMs - this.#lookedMs < LOOK_EVERY_MS || health.blockOf(this.#provider, EVERY_MODEL)) return;
    this.#lookedMs = nowMs;
    await this.#record(await this.#running(nowMs)).catch((error) => {
      if (!this.#stopping.aborted)
        log.debug("the jobs of an upstream could not be recorded", { error: String(error) });
    });
  }

  /** All jobs that run at the upstream; null when they cannot be listed. */
  async #running(nowMs: number): Promise<UpstreamJob[] | null> {
    const running: UpstreamJob[] = [];
    try {
      for await (const job of this.#provider.list(this.#stopping)) {
        if (job.createdAtMs !== null && job.createdAtMs < nowMs - FORGOTTEN_MS - CLOCK_SLACK_MS) break;
        if (job.state === "running") running.push(job);
      }
    } catch (error) {
      if (!this.#stopping.aborted)
        this.#deps.log.debug("the jobs of an upstream could not be listed", { error: String(error) });
      return null;
    }
    return running;
  }

  /** Records the jobs that are unknown here, and logs those that are new. */
  async #record(running: readonly UpstreamJob[] | null): Promise<void> {
    if (running === null) return;
    const { stores, log } = this.#deps;
    const { name: provider } = this.#provider;
    const { upstreamJobs } = stores.read;
    const known = (await upstreamJobs.foreign()).filter((job) => job.provider === provider);
    const before = new Set(known.map(({ name }) => name));
    const foreign = (await upstreamJobs.unknown(running)).map(({ name, jobId, said, createdAtMs }) => {
      return { provider, name, jobId, said, createdAtMs };
    });
    for (const { name, jobId } of foreign.filter((job) => !before.has(job.name))) {
      const facts = { provider, job: name, id: jobId };
      log.warn("the upstream has a job that this service does not know; it is left alone", facts);
    }
    if (foreign.length > 0 || before.size > 0)
      await stores.write((tx) => tx.upstreamJobs.setForeign(provider, foreign));
  }
}
