import PQueue from "p-queue";
import type { LeasedItem } from "../../domain/batches/finish-item.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { WorkerDeps } from "../deps.ts";
import { RoundRobin } from "../round-robin.ts";
import type { WorkerPool } from "../worker-pool.ts";
import { type ItemAttempt, makeItem, recordItem } from "./run-item.ts";

const TROUBLE_DELAY_MS = 1000;
/** No item waits longer for its next try: a later time was written before the clock was set back. */
const LONGEST_PAUSE_MS = 3_600_000;

interface ActiveBatch {
  batch: BatchRecord;
  running: Set<AbortController>;
  /** Ends the wait for an item whose time has not come. */
  waiting: AbortController | null;
  /** A due time that was waited for. It counts as reached even when the wall clock was set back meanwhile. */
  waitedForMs: number;
  /** While it is held, none of its items is started. */
  isHeld: boolean;
}

/**
 * Makes the items of batches with one provider, never more at once than it takes. Keys take turns, and the batches of a
 * key do, an item each, so that neither a large batch nor a caller with many holds up others. See LEASES.md beside
 * this file.
 */
export class ItemPool implements WorkerPool {
  readonly provider: ItemProvider;
  readonly #deps: WorkerDeps;
  readonly #queue: PQueue;
  readonly #active = new Map<string, ActiveBatch>();
  /** Active batches that may have an item to start. */
  readonly #roundRobin = new RoundRobin<ActiveBatch>();
  readonly #onBatchIdle: (batchId: string) => void;
  readonly #stopping = new AbortController();
  /** Items whose image is made and is being stored; their slots are free for the next. */
  readonly #recording = new Set<Promise<void>>();
  #filling: Promise<void> | null = null;
  #fillAgain = false;
  #isPaused = false;

  /** `onBatchIdle` is called when a batch has no item left that is pending or being made here. */
  constructor(deps: WorkerDeps, provider: ItemProvider, onBatchIdle: (batchId: string) => void) {
    this.#deps = deps;
    this.provider = provider;
    this.#onBatchIdle = onBatchIdle;
    this.#queue = new PQueue({ concurrency: provider.concurrency });
    this.#queue.on("next", () => this.#fill());
  }

  get load(): { running: number; slots: number } {
    return { running: this.#queue.pending, slots: this.provider.concurrency };
  }

  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    if (!isPaused) this.#fill();
  }

  /** Nothing is left behind at a provider that makes one image a call. */
  async start(): Promise<void> {}

  add(batch: BatchRecord): void {
    const idle = { running: new Set<AbortController>(), waiting: null, waitedForMs: 0, isHeld: false };
    const active = this.#active.get(batch.id) ?? { batch, ...idle };
    active.isHeld = false;
    this.#active.set(batch.id, active);
    this.#enqueue(active);
  }

  hold(batchId: string): void {
    const active = this.#active.get(batchId);
    if (!active) return;
    active.isHeld = true;
    this.#roundRobin.delete(active.batch.apiKeyId, batchId);
  }

  remove(batchId: string): void {
    const active = this.#active.get(batchId);
    if (!active) return;
    this.#active.delete(batchId);
    this.#roundRobin.delete(active.batch.apiKeyId, batchId);
    active.waiting?.abort();
  }

  async abort(batchId: string): Promise<void> {
    for (const controller of this.#active.get(batchId)?.running ?? []) controller.abort();
    this.remove(batchId);
  }

  async stop(graceMs: number): Promise<void> {
    this.#stopping.abort();
    for (const { waiting } of this.#active.values()) waiting?.abort();
    await this.#filling;
    const grace = new AbortController();
    const idle = this.#idle().then(() => grace.abort());
    await this.#deps.clock.sleep(graceMs, grace.signal).catch(() => {});
    for (const { running } of this.#active.values()) for (const controller of running) controller.abort();
    await idle;
  }

  async #idle(): Promise<void> {
    await this.#queue.onIdle();
    await Promise.all(this.#recording);
  }

  #isActive(active: ActiveBatch): boolean {
    return this.#active.get(active.batch.id) === active;
  }

  #enqueue(active: ActiveBatch): void {
    if (this.#isActive(active) && !active.isHeld)
      this.#roundRobin.add(active.batch.apiKeyId, active.batch.id, active);
    this.#fill();
  }

  /** Fills the free slots. A call during a fill makes it check once more. */
  #fill(): void {
    this.#fillAgain = true;
    this.#filling ??= this.#fillFreeSlots().finally(() => {
      this.#filling = null;
      if (this.#fillAgain && !this.#stopping.signal.aborted) this.#fill();
    });
  }

  async #fillFreeSlots(): Promise<void> {
    while (this.#fillAgain) {
      this.#fillAgain = false;
      while (this.#hasFreeSlot()) {
        const active = this.#roundRobin.next();
        if (!active) break;
        try {
          const item = await this.#claim(active);
          if (item) this.#start(active, item);
          else await this.#rest(active);
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

  #hasFreeSlot(): boolean {
    const busy = this.#queue.size + this.#queue.pending;
    const { concurrency } = this.provider;
    // Storing is bounded too: images wait in memory for it.
    const isBehind = this.#recording.size > concurrency;
    return !this.#isPaused && !this.#stopping.signal.aborted && busy < concurrency && !isBehind;
  }

  #claim({ batch: { id: batchId }, waitedForMs }: ActiveBatch): Promise<LeasedItem | null> {
    const nowMs = Math.max(this.#deps.clock.nowMs(), waitedForMs);
    const token = this.#deps.ids.leaseToken();
    return this.#deps.stores.write(async (tx) => {
      // Read inside the transaction: a batch that was just cancelled starts no item.
      if ((await tx.batches.byId(batchId))?.status !== "running") return null;
      const item = await tx.items.claim(batchId, { token, nowMs });
      return item && { ...item, leaseToken: token };
    });
  }

  #start(active: ActiveBatch, item: LeasedItem): void {
    // Cancelled since the claim: the item has failed with its batch.
    if (!this.#isActive(active)) return;
    const controller = new AbortController();
    active.running.add(controller);
    void this.#queue.add(async () => {
      const attempt = await makeItem(this.#deps, this.provider, active.batch, item, controller.signal);
      const recorded = this.#record(item, attempt, controller.signal).finally(() => {
        active.running.delete(controller);
        this.#recording.delete(recorded);
        this.#enqueue(active);
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

  /** Called when there is nothing to claim: the batch is done here, or its items are being made or wait for their time. */
  async #rest(active: ActiveBatch): Promise<void> {
    const { id, apiKeyId } = active.batch;
    this.#roundRobin.delete(apiKeyId, id);
    if (!this.#isActive(active)) return;
    active.waitedForMs = 0;
    const { items } = this.#deps.stores.read;
    const dueMs = await items.nextDueMs(id);
    if (this.#stopping.signal.aborted || !this.#isActive(active)) return;
    if (dueMs !== null) return this.#wait(active, dueMs);
    if (active.running.size > 0) return;
    const { pending } = await items.countByStatus(id);
    if (!this.#isActive(active)) return;
    if (pending > 0) {
      // No worker has them any more: giving back their leases had failed.
      await this.#deps.stores.write((tx) => tx.items.dropLeases(id));
      this.#enqueue(active);
      return;
    }
    this.#active.delete(id);
    this.#onBatchIdle(id);
  }

  #wait(active: ActiveBatch, dueMs: number): void {
    const delayMs = Math.min(LONGEST_PAUSE_MS, Math.max(1, dueMs - this.#deps.clock.nowMs()));
    active.waiting?.abort();
    const waiting = new AbortController();
    active.waiting = waiting;
    this.#deps.clock.sleep(delayMs, waiting.signal).then(
      () => {
        active.waitedForMs = dueMs;
        this.#enqueue(active);
      },
      () => {},
    );
  }
}
