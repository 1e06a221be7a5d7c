import PQueue from "p-queue";
import { FORGOTTEN_MS } from "../../domain/jobs/job-rules.ts";
import type { JobProvider } from "../../domain/ports/image-provider.ts";
import { linkSignals } from "../../kernel/linked-signal.ts";
import type { WorkerDeps } from "../deps.ts";
import { closeJob } from "./close-job.ts";

/** Pauses between two attempts to close a job: each is twice as long as the last. */
const AGAIN_MS = { first: 30_000, longest: 600_000 };
const AT_ONCE = 4;
/** Somebody waits for the first attempt. The later ones take as long as their calls, which may wait for the rate. */
const FIRST_ATTEMPT_MS = 30_000;

/** Closes the jobs that are not needed any more. A failed attempt is repeated later, and at the next start. */
export class JobCloser {
  readonly #deps: WorkerDeps;
  readonly #provider: JobProvider;
  readonly #stopping: AbortSignal;
  readonly #queue = new PQueue({ concurrency: AT_ONCE });
  readonly #loops = new Map<string, { wake: AbortController; ended: Promise<void> }>();
  /** The last attempt for each job, while it runs. */
  readonly #attempts = new Map<string, Promise<boolean>>();

  constructor(deps: WorkerDeps, provider: JobProvider, stopping: AbortSignal) {
    this.#deps = deps;
    this.#provider = provider;
    this.#stopping = stopping;
  }

  /** Makes one attempt now, for at most 30 seconds; others follow in the background. Rejects when the attempt fails. */
  async closeNow(jobId: string): Promise<void> {
    try {
      if (!(await this.#attemptNow(jobId))) this.#closeLater(jobId);
    } catch (error) {
      const facts = { job: jobId, error: String(error) };
      this.#deps.log.error("the upstream could not be told to cancel", facts);
      this.#closeLater(jobId);
      throw error;
    }
  }

  #attemptNow(jobId: string): Promise<boolean> {
    return this.#attempt(jobId, async () => {
      const { signal, unlink } = linkSignals(this.#stopping, AbortSignal.timeout(FIRST_ATTEMPT_MS));
      return closeJob(this.#deps, this.#provider, jobId, signal).finally(unlink);
    });
  }

  /** Attempts for one job run one after the other, so that a second one sees the result of the first. */
  #attempt(jobId: string, close: () => Promise<boolean>): Promise<boolean> {
    const last = this.#attempts.get(jobId);
    const attempt = (last === undefined ? close() : last.then(close, close)).finally(() => {
      if (this.#attempts.get(jobId) === attempt) this.#attempts.delete(jobId);
    });
    this.#attempts.set(jobId, attempt);
    return attempt;
  }

  /** Closes a job in the background, at once. */
  close(jobId: string): void {
    const loop = this.#loops.get(jobId);
    if (loop) loop.wake.abort();
    else this.#begin(jobId, 0);
  }

  #closeLater(jobId: string): void {
    if (!this.#loops.has(jobId)) this.#begin(jobId, AGAIN_MS.first);
  }

  async idle(): Promise<void> {
    await Promise.all([...this.#loops.values()].map(({ ended }) => ended));
  }

  #begin(jobId: string, delayMs: number): void {
    if (this.#stopping.aborted) return;
    const loop = { wake: new AbortController(), ended: Promise.resolve() };
    this.#loops.set(jobId, loop);
    loop.ended = this.#closeUntilDone(jobId, loop, delayMs).finally(() => this.#loops.delete(jobId));
  }

  async #closeUntilDone(jobId: string, loop: { wake: AbortController }, firstDelayMs: number): Promise<void> {
    const { clock, log } = this.#deps;
    const startMs = clock.nowMs();
    for (let delayMs = firstDelayMs; !this.#stopping.aborted; delayMs = longer(delayMs)) {
      try {
        if (delayMs > 0) await this.#sleep(delayMs, loop);
        const close = () => closeJob(this.#deps, this.#provider, jobId, this.#stopping);
        if (await this.#queue.add(() => this.#attempt(jobId, close))) return;
      } catch (error) {
        if (this.#stopping.aborted) return;
        log.warn("a job could not be closed upstream; trying again", { job: jobId, error: String(error) });
        // The upstream has forgotten it by then.
        if (clock.nowMs() - startMs > FORGOTTEN_MS) return;
      }
    }
  }

  /** Sleeps until the time is over or the loop is woken. */
  async #sleep(ms: number, loop: { wake: AbortController }): Promise<void> {
    loop.wake = new AbortController();
    const { signal, unlink } = linkSignals(loop.wake.signal, this.#stopping);
    await this.#deps.clock.sleep(ms, signal).catch(() => {});
    unlink();
    this.#stopping.throwIfAborted();
  }
}

function longer(delayMs: number): number {
  return Math.min(Math.max(2 * delayMs, AGAIN_MS.first), AGAIN_MS.longest);
}
