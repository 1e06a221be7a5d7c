import { isTerminal } from "../contract/statuses.ts";
import { cancelBatch } from "../domain/batches/cancel-batch.ts";
import type { ProviderOffer } from "../domain/batches/create-batch.ts";
import { failBatch } from "../domain/batches/fail-batch.ts";
import type { ImageProvider } from "../domain/ports/image-provider.ts";
import { advanceBatch, endOf } from "./advance-batch.ts";
import type { WorkerDeps } from "./deps.ts";
import { ItemLane } from "./item-lane.ts";
import { JobLane } from "./job-lane.ts";
import { recover } from "./recovery.ts";
import type { WorkLane } from "./work-lane.ts";

const TROUBLE_DELAY_MS = 1000;
const WAKES_AT_ONCE = 20;

/**
 * Decides what is worked on: every batch that has not ended is either in a lane (its items are being made) or being
 * advanced (results, money). The database owns the truth; this only remembers which batches want attention.
 * Rules: LIFE-5, LIFE-6, CANCEL-1, CANCEL-4.
 */
export class Scheduler {
  readonly #deps: WorkerDeps;
  readonly #lanes: Map<string, WorkLane>;
  /** Batches being advanced now, and whether somebody asked for another look meanwhile. */
  readonly #advancing = new Map<string, { again: boolean }>();
  readonly #work = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  #isRunning = false;

  constructor(deps: WorkerDeps) {
    this.#deps = deps;
    const laneOf = (provider: ImageProvider): WorkLane =>
      provider.kind === "item"
        ? new ItemLane(deps, provider, (id) => this.wake(id))
        : new JobLane(deps, provider, (id) => this.wake(id));
    this.#lanes = new Map(deps.providers.map((provider) => [provider.name, laneOf(provider)]));
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  /** Cleans up after a killed process, then continues every batch that has not ended. */
  async start(): Promise<void> {
    const unfinished = await recover(this.#deps);
    this.#isRunning = true;
    for (const [i, batchId] of unfinished.entries()) {
      this.wake(batchId);
      // Thousands of batches must not keep the service from answering meanwhile.
      if (i % WAKES_AT_ONCE === WAKES_AT_ONCE - 1) await new Promise((resume) => setImmediate(resume));
    }
  }

  /** Says that a batch may have something to do: it is new, or an item of it has ended. */
  wake(batchId: string): void {
    if (!this.#isRunning) return;
    const current = this.#advancing.get(batchId);
    if (current) {
      current.again = true;
      return;
    }
    this.#advancing.set(batchId, { again: false });
    const work = this.#advance(batchId).finally(() => {
      this.#work.delete(work);
      const { again } = this.#advancing.get(batchId) ?? { again: false };
      this.#advancing.delete(batchId);
      if (again) this.wake(batchId);
    });
    this.#work.add(work);
  }

  /**
   * Cancels a batch and stops what runs for it; an ended batch stays as it is. The batch is cancelled in any case:
   * `BATCH_IMAGE_CANCEL_FAILED` says that an upstream's job could not be told, and goes on there.
   */
  async cancel(batchId: string): Promise<void> {
    if (!(await cancelBatch(this.#deps.stores, batchId, endOf(this.#deps)))) return;
    this.#deps.feed.publish({ type: "batch", batchId, status: "cancelled" });
    await Promise.all([...this.#lanes.values()].map((lane) => lane.abort(batchId)));
    this.#forget(batchId);
  }

  /** Takes no more work, gives what runs `graceMs` to end, parks the rest for the next start. */
  async stop(graceMs: number): Promise<void> {
    this.#isRunning = false;
    this.#stopping.abort();
    await Promise.all([...this.#lanes.values()].map((lane) => lane.stop(graceMs)));
    await Promise.allSettled([...this.#work]);
  }

  async #advance(batchId: string): Promise<void> {
    try {
      const status = await advanceBatch(this.#deps, batchId);
      if (status === null || isTerminal(status)) return this.#forget(batchId);
      if (status === "running") await this.#makeImages(batchId);
    } catch (error) {
      this.#deps.log.error("batch could not be advanced; trying again", {
        batch: batchId,
        error: String(error),
      });
      await this.#deps.clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).catch(() => {});
      const current = this.#advancing.get(batchId);
      if (current) current.again = true;
    }
  }

  async #makeImages(batchId: string): Promise<void> {
    const batch = this.#deps.stores.read.batches.byId(batchId);
    if (!batch) return;
    const lane = this.#lanes.get(batch.provider) ?? this.#laneFor(batch.model);
    if (lane) return lane.add(batch);
    const message = "No provider makes images for this model any more.";
    const error = { code: "BATCH_IMAGE_PROVIDER_SUBMIT_FAILED", message, source: "service" as const };
    const failed = await failBatch(this.#deps.stores, batchId, error, endOf(this.#deps));
    if (failed) this.#deps.feed.publish({ type: "batch", batchId, status: "failed" });
  }

  #laneFor(model: string): WorkLane | null {
    return [...this.#lanes.values()].find((lane) => lane.provider.serves(model)) ?? null;
  }

  #forget(batchId: string): void {
    for (const lane of this.#lanes.values()) lane.remove(batchId);
  }
}

/** The provider that a new batch for this model would get: the first that serves it. */
export function offerOf(
  providers: WorkerDeps["providers"],
  rateMultipliers: ReadonlyMap<string, number>,
  model: string,
): ProviderOffer | null {
  const provider = providers.find((p) => p.serves(model));
  return provider ? { name: provider.name, rateMultiplier: rateMultipliers.get(provider.name) ?? 1 } : null;
}
