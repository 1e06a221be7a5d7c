import PQueue from "p-queue";
import { ImgbatchError } from "../contract/errors.ts";
import { failBatch } from "../domain/batches/fail-batch.ts";
import type { JobProvider } from "../domain/ports/image-provider.ts";
import type { BatchRecord } from "../domain/records.ts";
import { endOf } from "./advance-batch.ts";
import type { WorkerDeps } from "./deps.ts";
import { runJob } from "./run-job.ts";
import type { WorkLane } from "./work-lane.ts";

const TROUBLE_DELAY_MS = 5000;
const CANCEL_TIMEOUT_MS = 10_000;

/** Hands batches to a provider that works on whole batches, never more jobs at once than it takes. */
export class JobLane implements WorkLane {
  readonly provider: JobProvider;
  readonly #deps: WorkerDeps;
  readonly #queue: PQueue;
  readonly #jobs = new Map<string, AbortController>();
  readonly #onBatchIdle: (batchId: string) => void;

  constructor(deps: WorkerDeps, provider: JobProvider, onBatchIdle: (batchId: string) => void) {
    this.#deps = deps;
    this.provider = provider;
    this.#onBatchIdle = onBatchIdle;
    this.#queue = new PQueue({ concurrency: provider.concurrency });
  }

  add(batch: BatchRecord): void {
    if (this.#jobs.has(batch.id)) return;
    const controller = new AbortController();
    this.#jobs.set(batch.id, controller);
    void this.#queue.add(async () => {
      await this.#work(batch, controller.signal);
      this.#jobs.delete(batch.id);
      if (!controller.signal.aborted) this.#onBatchIdle(batch.id);
    });
  }

  remove(batchId: string): void {
    this.#jobs.get(batchId)?.abort();
  }

  async abort(batchId: string): Promise<void> {
    this.remove(batchId);
    const name = this.#deps.stores.read.upstreamJobs.ofBatch(batchId)?.upstreamName;
    if (!name || this.#deps.stores.read.batches.byId(batchId)?.provider !== this.provider.name) return;
    try {
      await this.provider.cancel(name, AbortSignal.timeout(CANCEL_TIMEOUT_MS));
    } catch (cause) {
      this.#deps.log.error("the upstream could not be told to cancel", {
        batch: batchId,
        error: String(cause),
      });
      throw new ImgbatchError("BATCH_IMAGE_CANCEL_FAILED", undefined, { cause });
    }
  }

  /** Jobs go on upstream; the next start finds them by their names. */
  async stop(): Promise<void> {
    for (const controller of this.#jobs.values()) controller.abort();
    await this.#queue.onIdle();
  }

  async #work(batch: BatchRecord, signal: AbortSignal): Promise<void> {
    const { stores, feed, log, clock } = this.#deps;
    while (!signal.aborted) {
      try {
        const error = await runJob(this.#deps, this.provider, batch, signal);
        if (error && (await failBatch(stores, batch.id, error, endOf(this.#deps)))) {
          feed.publish({ type: "batch", batchId: batch.id, status: "failed" });
        }
        return;
      } catch (error) {
        if (signal.aborted) return;
        log.error("job could not be continued; trying again", { batch: batch.id, error: String(error) });
        await stores.write((tx) => tx.items.dropLeases(batch.id)).catch(() => {});
        await clock.sleep(TROUBLE_DELAY_MS, signal).catch(() => {});
      }
    }
  }
}
