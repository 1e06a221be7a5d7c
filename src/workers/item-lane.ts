import PQueue from "p-queue";
import type { LeasedItem } from "../domain/batches/finish-item.ts";
import type { ItemProvider } from "../domain/ports/image-provider.ts";
import type { BatchRecord } from "../domain/records.ts";
import type { WorkerDeps } from "./deps.ts";
import { type ItemAttempt, makeItem, recordItem } from "./run-item.ts";
import type { WorkLane } from "./work-lane.ts";

const TROUBLE_DELAY_MS = 1000;

interface ActiveBatch {
  batch: BatchRecord;
  running: Set<AbortController>;
}

/**
 * Makes the items of batches with one provider, never more at once than it takes. Batches take turns, an item each,
 * so that a large one does not hold up a small one that came later. See LEASES.md beside this file.
 * Rules: WORK-2, WORK-3, LIFE-6.
 */
export class ItemLane implements WorkLane {
  readonly provider: ItemProvider;
  readonly #deps: WorkerDeps;
  readonly #queue: PQueue;
  /** Whose turn it is: the first entry. */
  readonly #turns = new Map<string, ActiveBatch>();
  readonly #onBatchIdle: (batchId: string) => void;
  readonly #stopping = new AbortController();
  /** Items whose image is made and is being stored; their places are free for the next. */
  readonly #recording = new Set<Promise<void>>();
  #filling: Promise<void> | null = null;
  #fillAgain = false;

  /** `onBatchIdle` is told when a batch has no item left that is pending or being made here. */
  constructor(deps: WorkerDeps, provider: ItemProvider, onBatchIdle: (batchId: string) => void) {
    this.#deps = deps;
    this.provider = provider;
    this.#onBatchIdle = onBatchIdle;
    this.#queue = new PQueue({ concurrency: provider.concurrency });
    this.#queue.on("next", () => this.#fill());
  }

  add(batch: BatchRecord): void {
    if (!this.#turns.has(batch.id)) this.#turns.set(batch.id, { batch, running: new Set() });
    this.#fill();
  }

  remove(batchId: string): void {
    this.#turns.delete(batchId);
  }

  async abort(batchId: string): Promise<void> {
    for (const controller of this.#turns.get(batchId)?.running ?? []) controller.abort();
  }

  async stop(graceMs: number): Promise<void> {
    this.#stopping.abort();
    await this.#filling;
    const grace = new AbortController();
    const idle = this.#idle().then(() => grace.abort());
    await this.#deps.clock.sleep(graceMs, grace.signal).catch(() => {});
    for (const { running } of this.#turns.values()) for (const controller of running) controller.abort();
    await idle;
  }

  async #idle(): Promise<void> {
    await this.#queue.onIdle();
    await Promise.all(this.#recording);
  }

  /** Fills the free places; a call during a fill makes it look once more. */
  #fill(): void {
    this.#fillAgain = true;
    this.#filling ??= this.#fillFreePlaces().finally(() => {
      this.#filling = null;
      if (this.#fillAgain && !this.#stopping.signal.aborted) this.#fill();
    });
  }

  async #fillFreePlaces(): Promise<void> {
    while (this.#fillAgain) {
      this.#fillAgain = false;
      let turnsLeft = this.#turns.size;
      while (turnsLeft-- > 0 && this.#hasFreePlace()) {
        const [batchId, active] = this.#turns.entries().next().value ?? [];
        if (batchId === undefined || active === undefined) break;
        this.#turns.delete(batchId);
        this.#turns.set(batchId, active);
        try {
          const item = await this.#claim(batchId);
          if (item) {
            turnsLeft = this.#turns.size;
            this.#start(active, item);
          } else await this.#pause(active);
        } catch (error) {
          // The database cannot be used now (disk full, say): waits a little, then looks again.
          this.#deps.log.error("no item could be claimed; trying again", { error: String(error) });
          await this.#deps.clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).catch(() => {});
          this.#fillAgain = true;
          return;
        }
      }
    }
  }

  #hasFreePlace(): boolean {
    const busy = this.#queue.size + this.#queue.pending;
    const { concurrency } = this.provider;
    // Storing is bounded too: images wait in memory for it.
    const isBehind = this.#recording.size > concurrency;
    return !this.#stopping.signal.aborted && busy < concurrency && !isBehind;
  }

  #claim(batchId: string): Promise<LeasedItem | null> {
    const nowMs = this.#deps.clock.nowMs();
    const token = this.#deps.ids.leaseToken();
    return this.#deps.stores.write((tx) => {
      // Asked inside the transaction: a batch that was cancelled a moment ago starts nothing any more.
      if (tx.batches.byId(batchId)?.status !== "running") return null;
      const item = tx.items.claim(batchId, { token, nowMs });
      return item && { ...item, leaseToken: token };
    });
  }

  #start(active: ActiveBatch, item: LeasedItem): void {
    const controller = new AbortController();
    active.running.add(controller);
    void this.#queue.add(async () => {
      const attempt = await makeItem(this.#deps, this.provider, active.batch, item, controller.signal);
      const recorded = this.#record(item, attempt, controller.signal).finally(() => {
        active.running.delete(controller);
        this.#recording.delete(recorded);
        this.#fill();
      });
      this.#recording.add(recorded);
    });
  }

  async #record(item: LeasedItem, attempt: ItemAttempt, signal: AbortSignal): Promise<void> {
    const status = await recordItem(this.#deps, item, attempt, signal);
    if (status !== "success" && status !== "failed") return;
    const { batchId, customId } = item;
    this.#deps.feed.publish({ type: "item", batchId, customId, status });
  }

  /** Nothing to claim: the batch is done here, or its items are being made, or they wait for their time. */
  async #pause(active: ActiveBatch): Promise<void> {
    if (active.running.size > 0) return;
    const batchId = active.batch.id;
    const { items } = this.#deps.stores.read;
    const dueMs = items.nextDueMs(batchId);
    if (dueMs === null && items.countByStatus(batchId).pending > 0) {
      // Nobody works on them here: their leases could not be given back.
      await this.#deps.stores.write((tx) => tx.items.dropLeases(batchId));
      this.#fillAgain = true;
      return;
    }
    this.#turns.delete(batchId);
    if (dueMs === null) {
      this.#onBatchIdle(batchId);
      return;
    }
    const delayMs = Math.max(1, dueMs - this.#deps.clock.nowMs());
    this.#deps.clock.sleep(delayMs, this.#stopping.signal).then(
      () => this.#onBatchIdle(batchId),
      () => {},
    );
  }
}
