import { named, type Waiting } from "../../contract/waiting.ts";
import { isPaid } from "../../domain/models.ts";
import { type ItemProvider, ProviderError } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { coalesced } from "../../kernel/coalesced.ts";
import { BatchSet, type PoolLoad, type WorkerPool } from "../batch-set.ts";
import type { WorkerDeps } from "../deps.ts";
import {
  availableOffers,
  claimItems,
  dropStale,
  type ItemBatch,
  type ItemRequest,
  type ItemWork,
  itemBatch,
  offersFor,
  type PlannedClaim,
  planClaim,
  waitForProvider,
} from "./item-batch.ts";
import { type ItemAttempt, makeItem, recordItem } from "./make-item.ts";

const TROUBLE_DELAY_MS = 1000;
/** Upper bound of a wait: after the clock was set back, a stored due time can lie far ahead. */
const LONGEST_PAUSE_MS = 3_600_000;
/** A provider gets no new requests while images that wait to be stored hold more bytes than this. */
const MOST_STORING_BYTES = 256 * 2 ** 20;
/** At least so many images may wait to be stored at a free provider: a slow disk must not idle its few slots. */
const FEW_STORING = 8;

/** A provider and the requests for items that were claimed for it. */
interface Lane {
  provider: ItemProvider;
  requests: Set<ItemRequest>;
}

/**
 * Makes the items of batches: claims them, asks a provider for each in one of its slots, and records the results. Keys take
 * turns, and the batches of a key do, an item each. A batch goes to the first of its providers that is available. While
 * none is, its items wait and lose no try.
 */
export class ItemPool implements WorkerPool {
  readonly #deps: WorkerDeps;
  readonly #lanes: readonly Lane[];
  readonly #batches = new BatchSet<ItemBatch>();
  readonly #onBatchIdle: (batchId: string) => void;
  readonly #stopping = new AbortController();
  readonly #stopListening: () => void;
  /** The tokens of claims, until their items have started here. */
  readonly #claiming = new Set<string>();
  readonly #fill = coalesced(() => this.#claimForFreeSlots());
  #isPaused = false;

  /** `onBatchIdle` is called when a batch has no item left that is pending or being made here. */
  constructor(deps: WorkerDeps, providers: readonly ItemProvider[], onBatchIdle: (batchId: string) => void) {
    this.#deps = deps;
    this.#onBatchIdle = onBatchIdle;
    this.#lanes = providers.map((provider) => ({ provider, requests: new Set() }));
    this.#stopListening = deps.health.onChange(() => {
      this.#takeBackUnsent();
      for (const active of this.#batches.all()) if (active.waiting) this.#next(active);
    });
    deps.ending.addEventListener("abort", () => this.#takeBackUnsent(), { once: true });
  }

  // Claim: items for free slots.

  async #claimForFreeSlots(): Promise<void> {
    const fills = await Promise.allSettled(this.#lanes.map((lane) => this.#claimFor(lane)));
    const failed = fills.find((fill) => fill.status === "rejected");
    if (!failed) return;
    // The database cannot be used now (disk full, say).
    this.#deps.log.error("no item could be claimed; trying again", { error: String(failed.reason) });
    await this.#deps.clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).catch(() => {});
    if (!this.#stopping.signal.aborted) void this.#fill();
  }

  async #claimFor(lane: Lane): Promise<void> {
    for (;;) {
      const plans = this.#planClaims(lane);
      if (plans.length === 0) return;
      const token = this.#deps.ids.leaseToken();
      this.#claiming.add(token);
      const without = new Set<ItemBatch>();
      try {
        const works = await claimItems(this.#deps, plans, token);
        for (const [at, { active }] of plans.entries()) {
          const work = works[at];
          if (work) this.#start(lane, active, work);
          else without.add(active);
        }
      } finally {
        this.#claiming.delete(token);
      }
      for (const active of without) {
        active.readyAt.delete(lane.provider);
        await this.#rest(active);
      }
    }
  }

  #planClaims(lane: Lane): PlannedClaim[] {
    const plans: PlannedClaim[] = [];
    const most = this.#mayBegin ? freeFor(lane) : 0;
    while (plans.length < most) {
      const active = this.#batches.next(({ isHeld, readyAt }) => !isHeld && readyAt.has(lane.provider));
      if (!active) break;
      const plan = planClaim(this.#deps, active, lane.provider);
      if (plan) plans.push(plan);
      else {
        // Its provider cannot be asked now: the batch goes to another one, or waits.
        active.readyAt.clear();
        this.#next(active);
      }
    }
    return plans;
  }

  /** Whether work may begin now: not while paused, while the service stops, or when its leases may be lost. */
  get #mayBegin(): boolean {
    const { ending, presence } = this.#deps;
    return !this.#isPaused && !this.#stopping.signal.aborted && !ending.aborted && presence.isFresh;
  }

  // Make: each claimed item in a slot, as soon as there is one.

  #start(lane: Lane, active: ItemBatch, work: ItemWork): void {
    // Cancelled since the claim: the item has failed with its batch.
    if (!this.#batches.has(active)) {
      work.ticket.dropped();
      return;
    }
    const controller = new AbortController();
    const request: ItemRequest = { active, work, controller, state: "waiting", isSent: false, bytes: 0 };
    lane.requests.add(request);
    active.requests.add(request);
    this.#batches.track(this.#run(lane, request));
  }

  async #run(lane: Lane, request: ItemRequest): Promise<void> {
    const { active } = request;
    const attempt = await makeItem(this.#deps, request, {
      maySend: () => this.#maySend(request.work),
      onAnswered: (bytes) => this.#onAnswered(request, bytes),
    });
    this.#onAnswered(request, bytesOf(attempt));
    await this.#record(request, attempt);
    lane.requests.delete(request);
    active.requests.delete(request);
    this.#next(active);
  }

  /** Whether an item may still be sent: much can happen between its claim and its request. */
  #maySend({ offer, ticket }: ItemWork): boolean {
    if (!this.#mayBegin) return false;
    return ticket.isProbe || !this.#deps.health.blockOf(offer.provider, offer.executedModel);
  }

  /** The answer has come, so the slot is free. */
  #onAnswered(request: ItemRequest, bytes: number): void {
    if (request.state === "answered") return;
    request.state = "answered";
    request.bytes = bytes;
    void this.#fill();
  }

  // Record: the result is durable before the batch goes on.

  async #record({ active, work, controller }: ItemRequest, attempt: ItemAttempt): Promise<void> {
    if (attempt instanceof ProviderError) {
      const { name } = work.offer.provider;
      active.unreachable = attempt.trouble === "unreachable" ? named(name, attempt.message) : null;
    }
    const status = await recordItem(this.#deps, work, attempt, controller.signal);
    if ("images" in attempt) await attempt.discard?.();
    if (status === "retry") active.isAllClaimed = false;
    if (status !== "success" && status !== "failed") return;
    const { batchId, customId } = work.item;
    this.#deps.feed.publish({ type: "item", batchId, customId, status });
  }

  // Next: what there is to do for a batch after each change.

  /** Lets the available providers of a batch claim its items. The batch waits while none is available. */
  #next(active: ItemBatch): void {
    if (this.#batches.has(active) && !active.isHeld && !this.#stopping.signal.aborted) {
      if (active.isAllClaimed) {
        if (active.requests.size === 0) this.#batches.track(this.#rest(active));
      } else {
        const available = availableOffers(this.#deps, active);
        if (available.length === 0) this.#batches.track(this.#findProvider(active));
        else active.waiting = null;
        for (const { provider } of available) active.readyAt.add(provider);
      }
    }
    void this.#fill();
  }

  /** Looks up the providers of a batch, and waits while none of them may be asked. */
  async #findProvider(active: ItemBatch): Promise<void> {
    try {
      if (active.offers === null) {
        Object.assign(active, await offersFor(this.#deps, active.batch));
        if (availableOffers(this.#deps, active).length > 0) return this.#next(active);
      }
      active.readyAt.clear();
      const againMs = await waitForProvider(this.#deps, active);
      if (againMs === "available") return this.#next(active);
      if (againMs === null) return this.#rest(active);
      if (active.waiting !== null) {
        // The health of the provider reports the end of a first request after a pause.
        this.#pause(active, Math.max(againMs, this.#deps.clock.nowMs() + TROUBLE_DELAY_MS));
      }
    } catch (error) {
      this.#retryLater(active, error);
    }
  }

  /** Called when there is nothing to claim: the batch is done here, or its items are being made or wait for their time. */
  async #rest(active: ItemBatch): Promise<void> {
    const { stores, clock } = this.#deps;
    const { id } = active.batch;
    if (!this.#batches.has(active)) return;
    try {
      active.waitedForMs = 0;
      // An item that is given back during the query sets this to false again.
      active.isAllClaimed = true;
      const dueMs = await stores.read.items.nextDueMs(id);
      if (dueMs !== null) active.isAllClaimed = false;
      if (this.#stopping.signal.aborted || !this.#batches.has(active)) return;
      if (dueMs !== null) {
        if (active.unreachable !== null && active.requests.size === 0)
          active.waiting = { code: "PROVIDER_UNREACHABLE", message: active.unreachable, untilMs: dueMs };
        // An item that is due but was not claimed waits for another provider.
        const againMs = this.#lanes.length > 1 ? clock.nowMs() + TROUBLE_DELAY_MS : 0;
        return this.#pause(active, Math.max(dueMs, againMs), dueMs);
      }
      if (active.requests.size > 0) return;
      const { pending } = await stores.read.items.countByStatus(id);
      if (!this.#batches.has(active)) return;
      if (pending === 0) {
        this.#batches.delete(active);
        this.#onBatchIdle(id);
      } else if ((await dropStale(this.#deps, active, this.#claiming)) > 0) {
        active.isAllClaimed = false;
        this.#next(active);
      }
      // Otherwise other processes make the rest: the next poll sees their outcome.
    } catch (error) {
      this.#retryLater(active, error);
    }
  }

  #retryLater(active: ItemBatch, error: unknown): void {
    this.#deps.log.error("a batch could not be looked at; trying again", { error: String(error) });
    this.#pause(active, this.#deps.clock.nowMs() + TROUBLE_DELAY_MS);
  }

  /** Goes on with a batch at `untilMs`. Items that are due at `dueMs` count as due then. */
  #pause(active: ItemBatch, untilMs: number, dueMs = 0): void {
    const delayMs = Math.min(LONGEST_PAUSE_MS, Math.max(1, untilMs - this.#deps.clock.nowMs()));
    active.pause?.abort();
    // A timer that is set after the stop has begun would keep the process alive.
    if (this.#stopping.signal.aborted) return;
    const pause = new AbortController();
    active.pause = pause;
    const goOn = () => {
      active.waitedForMs = dueMs;
      this.#next(active);
    };
    this.#deps.clock.sleep(delayMs, pause.signal).then(goOn, () => {});
  }

  // The pool as the scheduler uses it.

  get load(): PoolLoad {
    const running = this.#requests().filter(({ state }) => state === "unsent" || state === "sent");
    return {
      running: running.length,
      paid: running.filter(({ state, work }) => state === "sent" && isPaid(work.offer.provider)).length,
      slots: this.#lanes.reduce((sum, { provider }) => sum + provider.concurrency, 0),
    };
  }

  #requests(): ItemRequest[] {
    return this.#lanes.flatMap(({ requests }) => [...requests]);
  }

  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    this.#takeBackUnsent();
    if (!isPaused) void this.#fill();
  }

  /** Cancels the requests that wait for a slot or for the rate of an upstream and must not be sent any more. */
  #takeBackUnsent(): void {
    for (const { work, controller, state } of this.#requests()) {
      const isUnsent = state === "unsent" && work.offer.provider.upstream !== undefined;
      if ((isUnsent || state === "waiting") && !this.#maySend(work)) controller.abort();
    }
  }

  /** Nothing is left behind at a provider that makes one image a call. */
  start(): void {}

  async poll(): Promise<void> {
    await this.#abortLost();
    for (const active of this.#batches.all()) {
      active.isAllClaimed = false;
      this.#next(active);
    }
  }

  /** Aborts the requests for items whose lease this process does not hold any more: nobody wants their results. */
  async #abortLost(): Promise<void> {
    const requests = this.#requests().filter(({ state }) => state !== "answered");
    if (requests.length === 0) return;
    const { stores, presence } = this.#deps;
    const held = new Set((await stores.read.items.leasesOf(presence.id)).map(({ leaseToken }) => leaseToken));
    for (const { work, controller, state } of requests)
      if (state !== "answered" && !held.has(work.item.leaseToken)) controller.abort();
  }

  reset(): void {
    for (const { batch } of this.#batches.all()) void this.abort(batch.id);
  }

  add(batch: BatchRecord): void {
    const active = this.#batches.get(batch.id) ?? itemBatch(batch);
    if (!this.#batches.has(active)) this.#batches.add(active);
    active.isHeld = false;
    active.isAllClaimed = false;
    this.#next(active);
  }

  hold(batchId: string): void {
    const active = this.#batches.get(batchId);
    if (!active) return;
    active.isHeld = true;
    for (const { controller, state } of active.requests) if (state === "waiting") controller.abort();
  }

  remove(batchId: string): void {
    const active = this.#batches.get(batchId);
    if (!active) return;
    this.#batches.delete(active);
    active.pause?.abort();
  }

  async abort(batchId: string): Promise<void> {
    for (const { controller } of this.#batches.get(batchId)?.requests ?? []) controller.abort();
    this.remove(batchId);
  }

  /** Why the items of a batch cannot be made now; null when they can, or when the batch is not here. */
  waitingOf(batchId: string): Waiting | null {
    return this.#batches.get(batchId)?.waiting ?? null;
  }

  async stop(graceMs: number, isAbandoned = false): Promise<void> {
    this.#stopping.abort();
    this.#stopListening();
    for (const { pause } of this.#batches.all()) pause?.abort();
    this.#takeBackUnsent();
    await this.#fill();
    const idle = this.#batches.idle();
    const grace = new AbortController();
    void idle.then(() => grace.abort());
    await this.#deps.clock.sleep(graceMs, grace.signal).catch(() => {});
    for (const { work, controller } of this.#requests())
      if (isAbandoned || !isPaid(work.offer.provider)) controller.abort();
    const paid = this.#requests().filter(({ controller }) => !controller.signal.aborted).length;
    if (paid > 0) this.#deps.log.info("waiting for requests that are paid", { paid });
    await idle;
  }
}

/**
 * How many items may be claimed for a provider. At a free one, as many as it has slots are claimed before there is a slot
 * for them, several at a time, so that no slot waits until the next claim is durable. At a paid one none is: a lease there
 * says that its request may have been sent.
 */
function freeFor({ provider, requests }: Lane): number {
  const { concurrency } = provider;
  const storing = [...requests].filter(({ state }) => state === "answered");
  const mostStoring = isPaid(provider) ? concurrency : Math.max(concurrency, FEW_STORING);
  const storingBytes = storing.reduce((sum, { bytes }) => sum + bytes, 0);
  if (storing.length > mostStoring || storingBytes > MOST_STORING_BYTES) return 0;
  const ahead = isPaid(provider) ? 0 : concurrency;
  const free = concurrency + ahead - (requests.size - storing.length);
  return free < ahead / 2 ? 0 : free;
}

const bytesOf = (attempt: ItemAttempt) =>
  "images" in attempt ? attempt.images.reduce((sum, { length }) => sum + length, 0) : 0;
