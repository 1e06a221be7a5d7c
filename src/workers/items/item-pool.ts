import type { Waiting } from "../../contract/waiting.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { coalesced } from "../../kernel/coalesced.ts";
import { BatchSet, type PoolLoad, type WorkerPool } from "../batch-set.ts";
import type { WorkerDeps } from "../deps.ts";
import { type ActiveBatch, activeBatch } from "./active-batch.ts";
import { claimItems, dropStale, type PlannedClaim, planClaim } from "./claim-work.ts";
import { ProviderSlots } from "./provider-slots.ts";
import { Requests } from "./requests.ts";
import type { ItemWork } from "./run-item.ts";
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
  readonly #batches = new BatchSet<ActiveBatch>();
  readonly #onBatchIdle: (batchId: string) => void;
  readonly #stopping = new AbortController();
  readonly #requests: Requests;
  readonly #stopListening: () => void;
  /** The tokens of claims, until their items have started here. */
  readonly #claiming = new Set<string>();
  readonly #fill = coalesced(() => this.#fillFreeSlots());

  /** `onBatchIdle` is called when a batch has no item left that is pending or being made here. */
  constructor(deps: WorkerDeps, providers: readonly ItemProvider[], onBatchIdle: (batchId: string) => void) {
    this.#deps = deps;
    this.#onBatchIdle = onBatchIdle;
    this.#requests = new Requests(deps, this.#stopping.signal);
    this.#slots = providers.map((provider) => new ProviderSlots(provider, deps.clock));
    this.#stopListening = deps.health.onChange(() => {
      this.#requests.takeBackUnsent();
      for (const active of this.#batches.all()) if (active.waiting) this.#enqueue(active);
    });
  }

  get load(): PoolLoad {
    return {
      running: this.#slots.reduce((sum, { running }) => sum + running, 0),
      paid: this.#requests.paid,
      slots: this.#slots.reduce((sum, { provider }) => sum + provider.concurrency, 0),
    };
  }

  setPaused(isPaused: boolean): void {
    this.#requests.setPaused(isPaused);
    if (!isPaused) void this.#fill();
  }

  /** Nothing is left behind at a provider that makes one image a call. */
  start(): void {}

  async poll(): Promise<void> {
    await this.#requests.abortLost();
    for (const slots of this.#slots) this.#requests.takeBackSurplus(slots);
    for (const active of this.#batches.all()) {
      active.isAllClaimed = false;
      this.#enqueue(active);
    }
  }

  reset(): void {
    for (const active of this.#batches.all()) this.#abort(active);
  }

  waitingOf(batchId: string): Waiting | null {
    return this.#batches.get(batchId)?.waiting ?? null;
  }

  add(batch: BatchRecord): void {
    const active = this.#batches.get(batch.id) ?? activeBatch(batch);
    if (!this.#batches.has(active)) this.#batches.add(active);
    active.isHeld = false;
    active.isAllClaimed = false;
    this.#enqueue(active);
  }

  hold(batchId: string): void {
    const active = this.#batches.get(batchId);
    if (!active) return;
    active.isHeld = true;
    active.readyAt.clear();
    this.#requests.takeBackWaiting(active);
  }

  remove(batchId: string): void {
    const active = this.#batches.get(batchId);
    if (!active) return;
    this.#batches.delete(active);
    active.pause?.abort();
  }

  async abort(batchId: string): Promise<void> {
    const active = this.#batches.get(batchId);
    if (active) this.#abort(active);
  }

  #abort({ batch, running }: ActiveBatch): void {
    for (const { controller } of running) controller.abort();
    this.remove(batch.id);
  }

  async stop(graceMs: number, isAbandoned = false): Promise<void> {
    this.#stopping.abort();
    this.#stopListening();
    for (const { pause } of this.#batches.all()) pause?.abort();
    const idle = () => Promise.all(this.#slots.map((slots) => slots.idle()));
    await Promise.all([this.#fill(), this.#batches.idle()]);
    await this.#requests.stop(graceMs, isAbandoned, idle());
  }

  /** Puts a batch with items to claim in line at each of its providers that is well. Without one it waits. */
  #enqueue(active: ActiveBatch): void {
    if (this.#batches.has(active) && !active.isHeld && !this.#stopping.signal.aborted) {
      if (!active.isAllClaimed) this.#lineUp(active);
      else if (active.running.size === 0) this.#batches.track(this.#rest(active));
    }
    void this.#fill();
  }

  #lineUp(active: ActiveBatch): void {
    const well = wellOffers(this.#deps, active);
    if (well.length === 0) this.#batches.track(this.#findProvider(active));
    else active.waiting = null;
    for (const { provider } of well) active.readyAt.add(provider);
  }

  /** Looks up the providers of a batch, and waits while none of them may be asked. */
  async #findProvider(active: ActiveBatch): Promise<void> {
    try {
      if (active.offers === null) {
        Object.assign(active, await offersFor(this.#deps, active.batch));
        if (wellOffers(this.#deps, active).length > 0) return this.#enqueue(active);
      }
      active.readyAt.clear();
      const againMs = await waitForProvider(this.#deps, active);
      if (againMs === "well") return this.#enqueue(active);
      if (againMs === null) return this.#rest(active);
      if (active.waiting !== null) {
        // The end of a first request after a pause is reported. Until then a look now and then is enough.
        this.#pause(active, Math.max(againMs, this.#deps.clock.nowMs() + TROUBLE_DELAY_MS));
      }
    } catch (error) {
      this.#lookLater(active, error);
    }
  }

  #lookLater(active: ActiveBatch, error: unknown): void {
    this.#deps.log.error("a batch could not be looked at; trying again", { error: String(error) });
    this.#pause(active, this.#deps.clock.nowMs() + TROUBLE_DELAY_MS);
  }

  /** Looks at a batch again at a time. `dueMs`: an item's time that counts as reached then. */
  #pause(active: ActiveBatch, untilMs: number, dueMs = 0): void {
    const delayMs = Math.min(LONGEST_PAUSE_MS, Math.max(1, untilMs - this.#deps.clock.nowMs()));
    active.pause?.abort();
    // A look may end after the stop has begun. Its timer would keep the process alive.
    if (this.#stopping.signal.aborted) return;
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

  async #fillFreeSlots(): Promise<void> {
    const fills = await Promise.allSettled(this.#slots.map((slots) => this.#fillSlots(slots)));
    const failed = fills.find((fill) => fill.status === "rejected");
    if (!failed) return;
    // The database cannot be used now (disk full, say): waits a little, then looks again.
    this.#deps.log.error("no item could be claimed; trying again", { error: String(failed.reason) });
    await this.#deps.clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).catch(() => {});
    if (!this.#stopping.signal.aborted) void this.#fill();
  }

  async #fillSlots(slots: ProviderSlots): Promise<void> {
    for (;;) {
      const plans = this.#planClaims(slots);
      if (plans.length === 0) return;
      for (const active of await this.#claimFor(slots, plans)) {
        active.readyAt.delete(slots.provider);
        await this.#rest(active);
      }
    }
  }

  /** Claims and starts the planned items. Returns the batches that had too few. */
  async #claimFor(slots: ProviderSlots, plans: readonly PlannedClaim[]): Promise<Set<ActiveBatch>> {
    const token = this.#deps.ids.leaseToken();
    this.#claiming.add(token);
    try {
      const works = await slots.claim(() => claimItems(this.#deps, plans, token));
      for (const [at, { active }] of plans.entries()) {
        const work = works[at];
        if (work) this.#start(active, slots, work);
      }
      return new Set(plans.flatMap(({ active }, at) => (works[at] ? [] : active)));
    } finally {
      this.#claiming.delete(token);
    }
  }

  /** Plans a claim for each item that may be claimed, while there are batches in line. */
  #planClaims(slots: ProviderSlots): PlannedClaim[] {
    const plans: PlannedClaim[] = [];
    while (this.#requests.mayBegin && plans.length < slots.free) {
      const active = this.#batches.next(({ readyAt }) => readyAt.has(slots.provider));
      if (!active) break;
      const plan = planClaim(this.#deps, active, slots.provider);
      if (plan) plans.push(plan);
      else {
        // Its provider cannot be asked now: the batch goes to another one, or waits.
        active.readyAt.clear();
        this.#enqueue(active);
      }
    }
    return plans;
  }

  #start(active: ActiveBatch, slots: ProviderSlots, work: ItemWork): void {
    const ends = { onFree: () => void this.#fill(), onEnd: () => this.#enqueue(active) };
    if (this.#batches.has(active)) this.#requests.start(active, slots, work, ends);
    // Cancelled since the claim: the item has failed with its batch.
    else work.ticket.dropped();
  }

  /** Called when there is nothing to claim: the batch is done here, or its items are being made or wait for their time. */
  async #rest(active: ActiveBatch): Promise<void> {
    try {
      await this.#restOrEnd(active);
    } catch (error) {
      this.#lookLater(active, error);
    }
  }

  async #restOrEnd(active: ActiveBatch): Promise<void> {
    const { id } = active.batch;
    if (!this.#batches.has(active)) return;
    active.waitedForMs = 0;
    const { items } = this.#deps.stores.read;
    // An item that is given back during the look takes it back.
    active.isAllClaimed = true;
    const dueMs = await items.nextDueMs(id);
    if (dueMs !== null) active.isAllClaimed = false;
    if (this.#stopping.signal.aborted || !this.#batches.has(active)) return;
    // An item that is due, but not here, waits for another provider.
    const againMs = this.#deps.clock.nowMs() + TROUBLE_DELAY_MS;
    if (dueMs !== null && active.unreachable !== null && active.running.size === 0) {
      active.waiting = { code: "PROVIDER_UNREACHABLE", message: active.unreachable, untilMs: dueMs };
    }
    if (dueMs !== null)
      return this.#pause(active, this.#slots.length > 1 ? Math.max(dueMs, againMs) : dueMs, dueMs);
    if (active.running.size > 0) return;
    const { pending } = await items.countByStatus(id);
    if (!this.#batches.has(active)) return;
    if (pending > 0) {
      // The other items are being made elsewhere: the next look sees their outcome.
      if ((await dropStale(this.#deps, active, this.#claiming)) === 0) return;
      active.isAllClaimed = false;
      return this.#enqueue(active);
    }
    this.#batches.delete(active);
    this.#onBatchIdle(id);
  }
}
