import PQueue from "p-queue";
import { ImgbatchError } from "../../contract/errors.ts";
import { failBatch } from "../../domain/batches/fail-batch.ts";
import type { JobProvider } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { endOf } from "../advance-batch.ts";
import type { WorkerDeps } from "../deps.ts";
import { reportEnded } from "../report-ended.ts";
import { RoundRobin } from "../round-robin.ts";
import type { PoolLoad, WorkerPool } from "../worker-pool.ts";
import { closeJob } from "./close-job.ts";
import { runJob } from "./run-job.ts";

const TROUBLE_DELAY_MS = 5000;
/** Pauses between two attempts to cancel an unwanted job upstream: each is twice as long as the last. */
const CANCEL_AGAIN_MS = { first: 30_000, longest: 3_600_000 };

interface WantedJob {
  batch: BatchRecord;
  controller: AbortController;
}

/**
 * Hands batches to a provider that works on whole batches, never more jobs at once than it takes. Keys take turns.
 * No job is left running upstream for a batch that has ended: a failed cancellation is repeated.
 */
export class JobPool implements WorkerPool {
  readonly provider: JobProvider;
  readonly #deps: WorkerDeps;
  readonly #queue: PQueue;
  readonly #jobs = new Map<string, WantedJob>();
  /** Batches that are not handed over yet. */
  readonly #roundRobin = new RoundRobin<WantedJob>();
  /** Batches whose job may be on its way to the upstream now. */
  readonly #working = new Set<string>();
  readonly #onBatchIdle: (batchId: string) => void;
  readonly #stopping = new AbortController();
  /** Ended batches whose jobs are being cancelled upstream. */
  readonly #cancelling = new Map<string, Promise<void>>();
  /** The last attempt for each batch to cancel its job, while that attempt runs. */
  readonly #closing = new Map<string, Promise<boolean>>();
  #isPaused = false;

  constructor(deps: WorkerDeps, provider: JobProvider, onBatchIdle: (batchId: string) => void) {
    this.#deps = deps;
    this.provider = provider;
    this.#onBatchIdle = onBatchIdle;
    this.#queue = new PQueue({ concurrency: provider.concurrency });
    this.#queue.on("next", () => this.#fill());
  }

  get load(): PoolLoad {
    // A job goes on at the upstream after a stop.
    return { running: this.#queue.pending, paid: 0, slots: this.provider.concurrency };
  }

  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    if (!isPaused) this.#fill();
  }

  async start(): Promise<void> {
    for (const { batchId } of await this.#deps.stores.read.upstreamJobs.openOfEnded())
      this.#keepCancelling(batchId, 0);
  }

  add(batch: BatchRecord): void {
    if (this.#jobs.has(batch.id)) return;
    const wanted = { batch, controller: new AbortController() };
    this.#jobs.set(batch.id, wanted);
    this.#roundRobin.add(batch.apiKeyId, batch.id, wanted);
    this.#fill();
  }

  /** A job that is not accepted is tried again by itself. */
  waitingOf(): null {
    return null;
  }

  /** A job is handed over as a whole: images that it makes meanwhile count. */
  hold(): void {}

  remove(batchId: string): void {
    const wanted = this.#jobs.get(batchId);
    if (!wanted) return;
    this.#roundRobin.delete(wanted.batch.apiKeyId, batchId);
    this.#jobs.delete(batchId);
    wanted.controller.abort();
  }

  async abort(batchId: string): Promise<void> {
    this.remove(batchId);
    try {
      if (await this.#close(batchId, { unknownMeansGone: false })) return;
    } catch (cause) {
      const facts = { batch: batchId, error: String(cause) };
      this.#deps.log.error("the upstream could not be told to cancel", facts);
      this.#keepCancelling(batchId, CANCEL_AGAIN_MS.first);
      throw new ImgbatchError("BATCH_IMAGE_CANCEL_FAILED", undefined, { cause });
    }
    this.#keepCancelling(batchId, CANCEL_AGAIN_MS.first);
  }

  /** Jobs go on upstream; the next start finds them by their names. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    for (const { controller } of this.#jobs.values()) controller.abort();
    await this.#queue.onIdle();
    await Promise.all(this.#cancelling.values());
  }

  #fill(): void {
    while (
      !this.#isPaused &&
      !this.#stopping.signal.aborted &&
      this.#queue.size + this.#queue.pending < this.provider.concurrency
    ) {
      const wanted = this.#roundRobin.next();
      if (!wanted) return;
      this.#roundRobin.delete(wanted.batch.apiKeyId, wanted.batch.id);
      void this.#queue.add(() => this.#work(wanted));
    }
  }

  async #work({ batch, controller: { signal } }: WantedJob): Promise<void> {
    this.#working.add(batch.id);
    await this.#makeImages(batch, signal);
    this.#working.delete(batch.id);
    if (this.#stopping.signal.aborted) return;
    // The batch may have ended while its job was being submitted, or because the state of the job is unknown.
    await this.#close(batch.id, { unknownMeansGone: false })
      .catch(() => false)
      .then((isClosed) => isClosed || this.#keepCancelling(batch.id, CANCEL_AGAIN_MS.first));
    if (signal.aborted) return;
    this.#jobs.delete(batch.id);
    this.#onBatchIdle(batch.id);
  }

  async #makeImages(batch: BatchRecord, signal: AbortSignal): Promise<void> {
    const { stores, log, clock } = this.#deps;
    while (!signal.aborted) {
      try {
        const error = await runJob(this.#deps, this.provider, batch, signal);
        const failed = error && (await failBatch(this.#deps, batch.id, error, () => endOf(this.#deps)));
        if (failed) reportEnded(this.#deps.feed, batch.id, "failed", failed);
        return;
      } catch (error) {
        if (signal.aborted) return;
        log.error("job could not be continued; trying again", { batch: batch.id, error: String(error) });
        await stores.write((tx) => tx.items.dropLeases(batch.id)).catch(() => {});
        await clock.sleep(TROUBLE_DELAY_MS, signal).catch(() => {});
      }
    }
  }

  /** Runs the attempts for a batch one after the other, so that a second one sees the result of the first. */
  #close(batchId: string, options: { unknownMeansGone: boolean }): Promise<boolean> {
    const attempt = () =>
      closeJob(this.#deps, this.provider, batchId, { ...options, signal: this.#stopping.signal });
    const last = this.#closing.get(batchId);
    const closing = (last === undefined ? attempt() : last.then(attempt, attempt)).finally(() => {
      if (this.#closing.get(batchId) === closing) this.#closing.delete(batchId);
    });
    this.#closing.set(batchId, closing);
    return closing;
  }

  #keepCancelling(batchId: string, delayMs: number): void {
    if (this.#cancelling.has(batchId)) return;
    const cancelling = this.#cancelUntilClosed(batchId, delayMs).finally(() =>
      this.#cancelling.delete(batchId),
    );
    this.#cancelling.set(batchId, cancelling);
  }

  async #cancelUntilClosed(batchId: string, firstDelayMs: number): Promise<void> {
    const { signal } = this.#stopping;
    for (let delayMs = firstDelayMs; !signal.aborted; delayMs = longer(delayMs)) {
      try {
        if (delayMs > 0) await this.#deps.clock.sleep(delayMs, signal);
        if (await this.#close(batchId, { unknownMeansGone: !this.#working.has(batchId) })) return;
      } catch (error) {
        if (signal.aborted) return;
        const facts = { batch: batchId, error: String(error) };
        this.#deps.log.warn("the upstream could still not be told to cancel; trying again", facts);
      }
    }
  }
}

function longer(delayMs: number): number {
  return Math.min(Math.max(2 * delayMs, CANCEL_AGAIN_MS.first), CANCEL_AGAIN_MS.longest);
}
