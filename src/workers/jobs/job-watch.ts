import { EVERY_MODEL } from "../../domain/health/transitions.ts";
import { CLOCK_SLACK_MS } from "../../domain/jobs/job-rules.ts";
import { type JobProvider, ProviderError, type UpstreamJob } from "../../domain/ports/image-provider.ts";
import { linkSignals } from "../../kernel/linked-signal.ts";
import type { WorkerDeps } from "../deps.ts";

/** One listing is less work than this many single requests. */
const LIST_FROM = 4;
/** A pause without an end lasts until health changes; a look now and then is enough. */
const LONGEST_SLEEP_MS = 60_000;

interface Watched {
  name: string;
  sentAtMs: number;
  dueMs: number;
  seen(job: UpstreamJob): void;
  failed(error: unknown): void;
}

/** Polls the jobs of a provider. Jobs that are due at about the same time share one listing. */
export class JobWatch {
  readonly #deps: WorkerDeps;
  readonly #provider: JobProvider;
  readonly #stopping: AbortSignal;
  readonly #watched = new Set<Watched>();
  #wake = new AbortController();
  #running: Promise<void> | null = null;

  constructor(deps: WorkerDeps, provider: JobProvider, stopping: AbortSignal) {
    this.#deps = deps;
    this.#provider = provider;
    this.#stopping = stopping;
  }

  /**
   * Returns the job as the upstream shows it at `dueMs` or soon after, once the upstream may be asked. Rejects with
   * `ProviderError`, or with the signal's reason.
   */
  look(job: { name: string; sentAtMs: number; dueMs: number }, signal: AbortSignal): Promise<UpstreamJob> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      const end = <T>(settle: (value: T) => void) => {
        return (value: T) => {
          this.#watched.delete(watched);
          signal.removeEventListener("abort", onAbort);
          settle(value);
        };
      };
      const watched: Watched = { ...job, seen: end(resolve), failed: end(reject) };
      const onAbort = () => {
        watched.failed(signal.reason);
        this.#wake.abort();
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.#watched.add(watched);
      this.#wake.abort();
      this.#start();
    });
  }

  async idle(): Promise<void> {
    await this.#running;
  }

  #start(): void {
    this.#running ??= this.#run().finally(() => {
      this.#running = null;
      if (this.#watched.size > 0 && !this.#stopping.aborted) this.#start();
    });
  }

  async #run(): Promise<void> {
    const { clock, health } = this.#deps;
    while (this.#watched.size > 0 && !this.#stopping.aborted) {
      const nowMs = clock.nowMs();
      const block = health.blockOf(this.#provider, EVERY_MODEL);
      const nextMs = Math.min(...[...this.#watched].map(({ dueMs }) => dueMs));
      const sleepMs = Math.max(
        nextMs - nowMs,
        block ? (block.untilMs ?? nowMs + LONGEST_SLEEP_MS) - nowMs : 0,
      );
      if (sleepMs > 0) {
        await this.#sleep(block ? Math.min(sleepMs, LONGEST_SLEEP_MS) : sleepMs);
        continue;
      }
      const due = [...this.#watched].filter(({ dueMs }) => dueMs <= nowMs + this.#provider.times.pollMs / 2);
      await (due.length < LIST_FROM ? this.#pollEach(due) : this.#listAll(due));
    }
  }

  async #sleep(ms: number): Promise<void> {
    this.#wake = new AbortController();
    const { signal, unlink } = linkSignals(this.#wake.signal, this.#stopping);
    await this.#deps.clock.sleep(ms, signal).catch(() => {});
    unlink();
  }

  async #pollEach(due: readonly Watched[]): Promise<void> {
    for (const watched of due) {
      if (!this.#watched.has(watched)) continue;
      try {
        watched.seen(await this.#provider.poll(watched.name, this.#stopping));
      } catch (error) {
        await this.#report(error);
        watched.failed(error);
      }
    }
  }

  /** A job that the list does not have is asked for by itself. */
  async #listAll(due: readonly Watched[]): Promise<void> {
    const missing = new Map(due.map((watched) => [watched.name, watched]));
    const backToMs = Math.min(...due.map(({ sentAtMs }) => sentAtMs)) - CLOCK_SLACK_MS;
    try {
      for await (const job of this.#provider.list(this.#stopping)) {
        missing.get(job.name)?.seen(job);
        missing.delete(job.name);
        if (missing.size === 0 || (job.createdAtMs !== null && job.createdAtMs < backToMs)) break;
      }
    } catch (error) {
      await this.#report(error);
      for (const watched of missing.values()) watched.failed(error);
      return;
    }
    await this.#pollEach([...missing.values()]);
  }

  /** Only what concerns the credential is a trouble of the provider. Looking is not making. */
  async #report(error: unknown): Promise<void> {
    const ticket = error instanceof ProviderError && this.#deps.health.begin(this.#provider, EVERY_MODEL);
    if (ticket) await (error.trouble === null ? ticket.dropped() : ticket.failed(error, "a look at jobs"));
  }
}
