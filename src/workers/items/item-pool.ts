import type { Waiting } from "../../domain/health/waiting.ts";
import { type ItemProvider, ProviderError } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { WorkerDeps } from "../deps.ts";
import type { PoolLoad, WorkerPool } from "../worker-pool.ts";
import { type ActiveBatch, activeBatch } from "./active-batch.ts";
import { claimWork } from "./claim-work.ts";
import { ProviderSlots } from "./provider-slots.ts";
import { type ItemAttempt, type ItemWork, makeItem, recordItem } from "./run-item.ts";
import { offersFor, waitForProvider, wellOffers } from "./wait-for-provider.ts";

const TROUBLE_DELAY_MS = 1000;
/** No item waits longer for its next try: a later time was written before the clock was set back. */
const LONGEST_PAUSE_MS = 3_600_000;
/**
 * Makes the items of batches, never more at once with a provider than it takes. Keys take turns, and the batches of a
 * key do, an item each, so that neither a large batch nor a caller with many holds up others. A batch goes to the first
 * of its providers that is well. While none is, its items wait and lose no try.
 */
export class ItemPool implements WorkerPool {
  readonly #deps: WorkerDeps;
  readonly #slots: readonly ProviderSlots[];
  readonly #active = new Map<string, ActiveBatch>();
  readonly #onBatchIdle: (batchId: string) => void;
  readonly #stopping = new AbortController();
  readonly #stopListening: () => void;
  readonly #looking = new Set<Promise<void>>();
  #filling: Promise<void> | null = null;
  #fillAgain = false;
  #isPaused = false;

  /** `onBatchIdle` is called when a batch has no item left that is pending or being made here. */
  constructor(deps: WorkerDeps, providers: readonly ItemProvider[], onBatchIdle: (batchId: string) => void) {
    this.#deps = deps;
    this.#onBatchIdle = onBatchIdle;
    this.#slots = providers.map((provider) => new ProviderSlots(provider));
    for (const { queue } of this.#slots) queue.on("next", () => this.#fill());
    this.#stopListening = deps.health.onChange(() => {
      for (const active of this.#active.values()) if (active.waiting) this.#enqueue(active);
    });
  }

  get load(): PoolLoad {
    return {
      running: this.#slots.reduce((sum, { queue }) => sum + queue.pending, 0),
      paid: this.#slots.reduce((sum, { queue, isPaid }) => sum + (isPaid ? queue.pending : 0), 0),
      slots: this.#slots.reduce((sum, { provider }) => sum + provider.concurrency, 0),
    };
  }

  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    if (!isPaused) this.#fill();
  }

  /** Nothing is left behind at a provider that makes one image a call. */
  async start(): Promise<void> {}

  waitingOf(batchId: string): Waiting | null {
    return this.#active.get(batchId)?.waiting ?? null;
  }

  add(batch: BatchRecord): void {
    const active = this.#active.get(batch.id) ?? activeBatch(batch);
    active.isHeld = false;
    this.#active.set(batch.id, active);
    this.#enqueue(active);
  }

  hold(batchId: string): void {
    const active = this.#active.get(batchId);
    if (!active) return;
    active.isHeld = true;
    this.#dequeue(active);
  }

  remove(batchId: string): void {
    const active = this.#active.get(batchId);
    if (!active) return;
    this.#active.delete(batchId);
    this.#dequeue(active);
    active.pause?.abort();
  }

  async abort(batchId: string): Promise<void> {
    for (const controller of this.#active.get(batchId)?.running.keys() ?? []) controller.abort();
    this.remove(batchId);
  }

  async stop(graceMs: number, isAbandoned = false): Promise<void> {
    this.#stopping.abort();
    this.#stopListening();
    for (const { pause } of this.#active.values()) pause?.abort();
    await Promise.all([this.#filling, ...this.#looking]);
    const grace = new AbortController();
    const idle = Promise.all(this.#slots.map((slots) => slots.idle())).then(() => grace.abort());
    await this.#deps.clock.sleep(graceMs, grace.signal).catch(() => {});
    const running = [...this.#active.values()].flatMap((active) => [...active.running]);
    for (const [controller, request] of running) if (isAbandoned || !request.isPaid) controller.abort();
    const paid = running.filter(([{ signal }]) => !signal.aborted).length;
    if (paid > 0) this.#deps.log.info("waiting for requests that are paid", { paid });
    await idle;
  }

  #isActive(active: ActiveBatch): boolean {
    return this.#active.get(active.batch.id) === active;
  }

  #dequeue({ batch }: ActiveBatch): void {
    for (const { roundRobin } of this.#slots) roundRobin.delete(batch.apiKeyId, batch.id);
  }

  /** Puts a batch in line at each of its providers that is well. Without one it waits. */
  #enqueue(active: ActiveBatch): void {
    if (this.#isActive(active) && !active.isHeld && !this.#stopping.signal.aborted) {
      const well = wellOffers(this.#deps, active);
      if (well.length === 0) this.#track(this.#findProvider(active));
      else active.waiting = null;
      const { apiKeyId, id } = active.batch;
      for (const { provider } of well) this.#slotsOf(provider)?.roundRobin.add(apiKeyId, id, active);
    }
    this.#fill();
  }

  #slotsOf(provider: ItemProvider): ProviderSlots | undefined {
    return this.#slots.find((slots) => slots.provider === provider);
  }

  #track(work: Promise<void>): void {
    const tracked = work.finally(() => this.#looking.delete(tracked));
    this.#looking.add(tracked);
  }

  /** Looks up the providers of a batch, and waits while none of them may be asked. */
  async #findProvider(active: ActiveBatch): Promise<void> {
    try {
      if (active.offers === null) {
        active.offers = await offersFor(this.#deps, active.batch);
        if (wellOffers(this.#deps, active).length > 0) return this.#enqueue(active);
      }
      this.#dequeue(active);
      const againMs = await waitForProvider(this.#deps, active);
      if (againMs === null) return await this.#rest(active);
      if (active.waiting !== null) {
        // The end of a first request after a pause is reported. Until then a look now and then is enough.
        this.#pause(active, Math.max(againMs, this.#deps.clock.nowMs() + TROUBLE_DELAY_MS));
      }
    } catch (error) {
      this.#deps.log.error("a waiting batch could not be looked at; trying again", { error: String(error) });
      this.#pause(active, this.#deps.clock.nowMs() + TROUBLE_DELAY_MS);
    }
  }

  /** Looks at a batch again at a time. `dueMs`: an item's time that counts as reached then. */
  #pause(active: ActiveBatch, untilMs: number, dueMs = 0): void {
    const delayMs = Math.min(LONGEST_PAUSE_MS, Math.max(1, untilMs - this.#deps.clock.nowMs()));
    active.pause?.abort();
    const pause = new AbortController();
    active.pause = pause;
    this.#deps.clock.sleep(delayMs, pause.signal).then(
      () => {
        active.waitedForMs = dueMs;
        this.#enqueue(active);
      },
      () => {},
    );
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
      for (const slots of this.#slots) {
        try {
          await this.#fillSlots(slots);
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

  /** Claims as many items at once as slots are free, because their transactions share a commit. */
  async #fillSlots(slots: ProviderSlots): Promise<void> {
    for (;;) {
      const claims: { active: ActiveBatch; claimed: Promise<ItemWork | null> }[] = [];
      while (!this.#isPaused && !this.#stopping.signal.aborted && claims.length < slots.free) {
        const active = slots.roundRobin.next();
        if (!active) break;
        const claim = claimWork(this.#deps, active, slots);
        if (claim) claims.push({ active, ...claim });
        else {
          // Its provider cannot be asked now: the batch goes to another one, or waits.
          this.#dequeue(active);
          this.#enqueue(active);
        }
      }
      if (claims.length === 0) return;
      const works = await Promise.allSettled(claims.map(({ claimed }) => claimed));
      const without = new Set<ActiveBatch>();
      for (const [at, { active }] of claims.entries()) {
        const work = works[at];
        if (work?.status === "fulfilled" && work.value) this.#start(active, slots, work.value);
        else without.add(active);
      }
      const failure = works.find((work) => work.status === "rejected");
      if (failure) throw failure.reason;
      for (const active of without) {
        slots.roundRobin.delete(active.batch.apiKeyId, active.batch.id);
        await this.#rest(active);
      }
    }
  }

  #start(active: ActiveBatch, slots: ProviderSlots, work: ItemWork): void {
    // Cancelled since the claim: the item has failed with its batch.
    if (!this.#isActive(active)) {
      work.ticket.dropped();
      return;
    }
    const controller = new AbortController();
    active.running.set(controller, slots);
    void slots.queue.add(async () => {
      const attempt = this.#mayBegin(work)
        ? await makeItem(this.#deps, work, controller.signal)
        : ({ aborted: true, isSent: false } as const);
      if (attempt instanceof ProviderError)
        active.unreachable = attempt.trouble === "unreachable" ? attempt.message : null;
      const recorded = this.#record(work, attempt, controller.signal).finally(() => {
        active.running.delete(controller);
        slots.recording.delete(recorded);
        this.#enqueue(active);
      });
      slots.recording.add(recorded);
    });
  }

  /** An item is not sent when the service stops, or its provider pauses, between the claim and its turn. */
  #mayBegin({ offer, ticket }: ItemWork): boolean {
    if (this.#stopping.signal.aborted) return false;
    return ticket.isProbe || !this.#deps.health.blockOf(offer.provider, offer.executedModel);
  }

  async #record(work: ItemWork, attempt: ItemAttempt, signal: AbortSignal): Promise<void> {
    const status = await recordItem(this.#deps, work, attempt, signal);
    if (status !== "success" && status !== "failed") return;
    const { batchId, customId } = work.item;
    this.#deps.feed.publish({ type: "item", batchId, customId, status });
  }

  /** Called when there is nothing to claim: the batch is done here, or its items are being made or wait for their time. */
  async #rest(active: ActiveBatch): Promise<void> {
    const { id } = active.batch;
    if (!this.#isActive(active)) return;
    active.waitedForMs = 0;
    const { items } = this.#deps.stores.read;
    const dueMs = await items.nextDueMs(id);
    if (this.#stopping.signal.aborted || !this.#isActive(active)) return;
    // An item that is due, but not here, waits for another provider.
    const againMs = this.#deps.clock.nowMs() + TROUBLE_DELAY_MS;
    if (dueMs !== null && active.unreachable !== null && active.running.size === 0) {
      active.waiting = { code: "PROVIDER_UNREACHABLE", message: active.unreachable, untilMs: dueMs };
    }
    if (dueMs !== null)
      return this.#pause(active, this.#slots.length > 1 ? Math.max(dueMs, againMs) : dueMs, dueMs);
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
}
