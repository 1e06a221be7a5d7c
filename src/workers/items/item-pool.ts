import type { Waiting } from "../../contract/waiting.ts";
import { startIn } from "../../domain/batches/lifecycle.ts";
import type { Block, Permit } from "../../domain/health/provider-health.ts";
import { noteOutage, waitingFor } from "../../domain/health/waiting.ts";
import { identityOf, isPaid, mayBePaidTwice, type Offer } from "../../domain/models.ts";
import { type ItemProvider, ProviderError } from "../../domain/ports/image-provider.ts";
import type { Repositories } from "../../domain/ports/stores.ts";
import type { BatchRecord, LeasedItem } from "../../domain/records.ts";
import { coalesced } from "../../kernel/pacing.ts";
import { tracer } from "../../kernel/tracing.ts";
import type { WorkerDeps } from "../deps.ts";
import { type PoolEvents, type PoolLoad, Tasks, TROUBLE_DELAY_MS, type WorkerPool } from "../worker-pool.ts";
import { type ItemRequest, makeItem, recordItem } from "./make-item.ts";

/** What is known of so many batches is kept, and of all that wait. */
const MOST_KNOWN = 500;

/** A batch with items to make, as far as this process knows it. */
interface ItemBatch {
  batch: BatchRecord;
  /** The providers that may make its items, in their order. */
  offers: readonly Offer<ItemProvider>[];
  /** Why none of its items can be made now; null while they can. */
  waiting: Waiting | null;
  /** Until when it waits for a provider, unless the health of one changes. */
  againMs: number;
}

/** The items that are to be claimed of a batch for a provider: one for each permission to ask it. */
interface Plan extends Pick<ItemBatch, "batch"> {
  offer: Offer<ItemProvider>;
  permits: Permit[];
  which: Parameters<Repositories["items"]["claim"]>[1]["which"];
}

/** Offers for which a claim found no more items. */
type Without = ReadonlySet<Offer<ItemProvider>>;

/** Decides which items are claimed next, and for which provider. While none of its providers may be asked, a batch waits. */
export class Turns {
  readonly #deps: WorkerDeps;
  readonly #events: PoolEvents & { isIdle(batchId: string): boolean };
  readonly #known = new Map<string, ItemBatch>();
  /** The earliest time at which a batch that waits may go on, as the last plan found it. In ms since 1970. */
  againMs = Number.POSITIVE_INFINITY;

  /** `isIdle`: whether no item of a batch is in flight here. */
  constructor(deps: WorkerDeps, events: PoolEvents & { isIdle(batchId: string): boolean }) {
    this.#deps = deps;
    this.#events = events;
  }

  /** Gives each queue a slot in its turn, and each batch of it in its own, until no slot is free. */
  async plan(free: Map<ItemProvider, number>, without: Without, nowMs: number): Promise<Plan[]> {
    const { providers, stores, goingOn } = this.#deps;
    const ofJobs = providers.flatMap(({ kind, name }) => (kind === "job" ? name : []));
    const isFull = () => free.size === 0 && ofJobs.length < providers.length;
    const plans: Plan[] = [];
    this.againMs = Number.POSITIVE_INFINITY;
    if (isFull()) return plans;
    try {
      let queues = (await stores.read.batches.queues(goingOn.kind)).filter(
        ({ provider }) => !ofJobs.includes(provider),
      );
      const turns = new Map<(typeof queues)[number], string[]>();
      while (queues.length > 0 && !isFull()) {
        for (const queue of queues) {
          if (isFull()) break;
          const turn = turns.get(queue) ?? (await stores.read.batches.nextOf(queue, nowMs));
          turns.set(queue, turn);
          const batchId = turn.shift();
          const known = batchId === undefined ? null : await this.#find(batchId, queue.provider);
          if (known && (await this.#planOne(plans, known, free, without))) turn.push(known.batch.id);
        }
        queues = queues.filter((queue) => (turns.get(queue)?.length ?? 0) > 0);
      }
      return plans;
    } catch (error) {
      for (const { permits } of plans) for (const permit of permits) permit.dropped();
      throw error;
    }
  }

  /** Returns a batch of a provider that is neither ended nor moved to another one; null without one. */
  async #find(batchId: string, provider: string): Promise<ItemBatch | null> {
    const before = this.#known.get(batchId);
    if (before?.batch.provider === provider) return before;
    const { stores, offers, health } = this.#deps;
    const batch = await stores.read.batches.byId(batchId);
    if (batch?.status !== "queued" && batch?.status !== "running") return null;
    const able = offers.forBatch(batch, batch.needs);
    const ofItems = able.filter((offer): offer is Offer<ItemProvider> => offer.provider.kind === "item");
    // An earlier process has had trouble with it.
    const { waiting } = batch;
    for (const { provider: each, executedModel } of waiting === null ? [] : ofItems)
      if (each.name === batch.provider && waiting) health.askOnceFirst(each, executedModel, waiting);
    const known = { batch, offers: ofItems, waiting: null, againMs: 0 };
    this.#known.set(batchId, known);
    return known;
  }

  /** Plans the claim of one more item, for the first provider of its batch. Returns false when none can be asked now. */
  async #planOne(
    plans: Plan[],
    known: ItemBatch,
    free: Map<ItemProvider, number>,
    without: Without,
  ): Promise<boolean> {
    const { health } = this.#deps;
    const { batch, offers } = known;
    if (!this.#events.mayBegin(batch.id)) return false;
    const blocks = offers.map((each) => health.blockOf(each.provider, each.executedModel));
    const available = offers.filter((_, at) => blocks[at] === null);
    if (available.length === 0) await this.#wait(known, blocks);
    else known.waiting = null;
    for (const offer of available) {
      const { provider } = offer;
      const isFirst = offer === available[0];
      if (!isFirst && batch.status === "queued") break;
      const left = free.get(provider);
      if (left === undefined || without.has(offer)) continue;
      const permit = health.begin(provider, offer.executedModel);
      if (!permit) continue;
      if (left > 1) free.set(provider, left - 1);
      else free.delete(provider);
      const which = available.length === 1 ? "any" : isFirst ? "not-failed-here" : "failed-elsewhere";
      const plan = plans.find((each) => each.offer === offer);
      if (plan) plan.permits.push(permit);
      else plans.push({ batch, offer, which, permits: [permit] });
      return true;
    }
    return false;
  }

  /** A batch without any provider here is left to processes that have one. */
  async #wait(known: ItemBatch, blocks: readonly (Block | null)[]): Promise<void> {
    const { clock, presence } = this.#deps;
    const { batch } = known;
    const waiting = waitingFor(blocks);
    if (waiting === null || (blocks.length === 0 && !presence.isOurs(batch.provider))) return;
    const nowMs = clock.nowMs();
    // An image that was on its way has ended the wait of the batch, and nothing else would say that it waits again.
    const isUntold = batch.waitingSinceMs === null;
    if (known.waiting === null || known.againMs <= nowMs || isUntold) {
      const isNew = known.waiting === null;
      const facts = { waiting, isNew, isIdle: this.#events.isIdle(batch.id) };
      const againMs = await noteWait(this.#deps, batch, facts);
      known.waiting = waiting;
      known.againMs = Math.max(againMs ?? 0, nowMs + TROUBLE_DELAY_MS);
      if (againMs === null) this.#events.onBatchIdle(batch.id);
    }
    this.againMs = Math.min(this.againMs, known.againMs);
  }

  /** Ends all waits for providers, because the health of a provider has changed. */
  endWaits(): void {
    for (const known of this.#known.values()) known.againMs = 0;
  }

  /** Whether the batch was not forgotten since it was planned. */
  knows(batchId: string): boolean {
    return this.#known.has(batchId);
  }

  forget(batchId: string): void {
    this.#known.delete(batchId);
  }

  /** Forgets batches when too many are known. Batches that wait are kept: each would cost a write when it is found again. */
  forgetSome(nowMs: number): void {
    if (this.#known.size <= MOST_KNOWN) return;
    for (const [id, { againMs }] of this.#known) if (againMs <= nowMs) this.#known.delete(id);
  }

  forgetAll(): void {
    this.#known.clear();
  }
}

/**
 * Records that a batch waits because none of its providers may be asked. Returns when to check again, in ms since 1970.
 * After too long a wait the pending items of an idle batch fail, and null is returned.
 */
export async function noteWait(
  { stores, clock, outageMs, presence, feed }: WorkerDeps,
  batch: BatchRecord,
  { waiting, isNew, isIdle }: { waiting: Waiting; isNew: boolean; isIdle: boolean },
): Promise<number | null> {
  const nowMs = clock.nowMs();
  // Its images may be paid already: a batch waits for its provider to be configured again, however long.
  const mayGiveUp = waiting.code !== "PROVIDER_NOT_CONFIGURED";
  const { id, waitingSinceMs } = batch;
  const mayBeOver = mayGiveUp && waitingSinceMs !== null && nowMs >= waitingSinceMs + outageMs;
  const wasAhead = waitingSinceMs !== null && waitingSinceMs > nowMs;
  if (isNew || waitingSinceMs === null || wasAhead || (mayBeOver && isIdle)) {
    const { sinceMs, isGivenUp, isStarted } = await stores.write(async (tx) => {
      // It has had its turn: what keeps it from being made is shown of a running batch.
      const isStarted = batch.status === "queued" && (await startIn(tx, id, nowMs));
      const facts = { batchId: id, workerId: presence.id, nowMs, outageMs, waiting };
      const { sinceMs, isOver } = await noteOutage(tx, facts);
      const isGivenUp = isOver && mayGiveUp && isIdle;
      if (isGivenUp) {
        const message = `The upstream could not be used for too long. ${waiting.message}`;
        const error = { code: "PROVIDER_ITEM_FAILED", message, source: "provider" } as const;
        const fail = await tx.items.failPending(id, error, nowMs, { besides: presence.id });
        await tx.batches.addCounts({ id, success: 0, fail });
      } else if (isNew) await tx.items.resetSwitches(id);
      return { sinceMs, isGivenUp, isStarted };
    });
    batch.status = "running";
    if (isStarted) feed.publish({ type: "batch", batchId: id, status: "running" });
    if (isGivenUp) return null;
    batch.waitingSinceMs = sinceMs;
  }
  const giveUpMs = mayGiveUp ? (batch.waitingSinceMs ?? nowMs) + outageMs : Number.POSITIVE_INFINITY;
  return Math.min(giveUpMs, waiting.untilMs ?? Number.POSITIVE_INFINITY);
}

/** How often an item may move to another provider. */
const MOST_SWITCHES = 2;
/** Upper bound of a sleep: after the clock was set back, a stored due time can lie far ahead. */
const LONGEST_SLEEP_MS = 3_600_000;
/** A provider gets no new requests while images that wait to be stored hold more bytes than this. */
const MOST_STORING_BYTES = 256 * 2 ** 20;
/** At least so many images may wait to be stored at a free provider: a slow disk must not idle its few slots. */
const FEW_STORING = 8;

/**
 * Makes the items of batches, each in four steps: claim, make, record, next. Whose turn it is stands in the database (see
 * `BatchRepository.queues`). A batch goes to the first of its providers that may be asked. While none may, its items wait
 * and lose no try.
 */
export class ItemPool implements WorkerPool {
  readonly #deps: WorkerDeps;
  readonly #events: PoolEvents;
  /** The requests for items that were claimed here and are not recorded yet. */
  readonly #inFlight = new Set<ItemRequest>();
  /** The work on each of them, which never rejects. */
  readonly #runs = new WeakMap<ItemRequest, Promise<void>>();
  readonly #providers: readonly ItemProvider[];
  readonly #turns: Turns;
  readonly #tasks = new Tasks();
  readonly #stopping = new AbortController();
  readonly #stopListening: () => void;
  readonly #fill = coalesced(() => this.#claimForFreeSlots());
  #sleeping = new AbortController();
  /** A due time that was waited for. It counts as reached even when the clock was set back meanwhile. */
  #reachedMs = 0;
  /** The time for which due items were searched last. */
  #searchedMs = 0;
  /** Leases and requests may differ: a transaction has seemed to fail, or other processes have changed something. */
  #mayDiffer = false;

  constructor(deps: WorkerDeps, events: PoolEvents) {
    this.#deps = deps;
    this.#events = events;
    this.#providers = deps.providers.filter((each) => each.kind === "item");
    this.#turns = new Turns(deps, { ...events, isIdle: (batchId) => this.#isIdle(batchId) });
    this.#stopListening = deps.health.onChange(() => {
      this.#turns.endWaits();
      this.wake();
    });
  }

  // Claim: items for free slots.

  async #claimForFreeSlots(): Promise<void> {
    this.#sleeping.abort();
    try {
      if (this.#mayDiffer) await this.#compareLeases();
      this.#turns.forgetSome(this.#deps.clock.nowMs());
      const without = new Set<Offer<ItemProvider>>();
      while (this.#events.mayBegin() && (await this.#claimSome(without)));
      if (this.#events.mayBegin() && this.#free().size > 0) await this.#sleepUntilDue();
    } catch (error) {
      // The database cannot be used now (disk full, say).
      this.#deps.log.error("no item could be claimed; trying again", { error: String(error) });
      this.#mayDiffer = true;
      await this.#deps.clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).catch(() => {});
      if (!this.#stopping.signal.aborted) void this.#fill();
    }
  }

  /**
   * Claims items for the slots that are free, and starts them. Returns false when there was nothing to claim. Adds to
   * `without` the offers for which no more items were found.
   */
  async #claimSome(without: Set<Offer<ItemProvider>>): Promise<boolean> {
    this.#searchedMs = this.#nowMs;
    const plans = await this.#turns.plan(this.#free(), without, this.#searchedMs);
    const startedAt = performance.now();
    let claimed = new Map<Plan, LeasedItem[]>();
    try {
      if (plans.length > 0) claimed = await this.#claim(plans);
    } finally {
      for (const plan of plans) {
        const items = claimed.get(plan) ?? [];
        if (items.length < plan.permits.length) without.add(plan.offer);
        for (const [at, permit] of plan.permits.entries()) {
          const item = items[at];
          // Cancelled since the claim: the item has failed with its batch.
          if (item && this.#turns.knows(item.batchId)) this.#start(plan, permit, item, startedAt);
          else permit.dropped();
        }
      }
    }
    return plans.length > 0;
  }

  /** One transaction for all plans. A batch is `running` from its first claim on, also when its items are due later. */
  async #claim(plans: readonly Plan[]): Promise<Map<Plan, LeasedItem[]>> {
    const { stores, presence, feed, ids, goingOn } = this.#deps;
    const nowMs = this.#nowMs;
    const leaseToken = ids.leaseToken();
    const { claimed, started } = await stores.write(async (tx) => {
      await tx.lock("batch", ...new Set(plans.map(({ batch }) => batch.id)));
      const claimed = new Map<Plan, LeasedItem[]>();
      const started: string[] = [];
      for (const plan of plans) {
        const { id, status } = plan.batch;
        const { provider } = plan.offer;
        // Another process may have been asked to cancel it.
        if (!presence.isAlone && (await tx.batches.locked(id))?.goesOn !== goingOn.kind) continue;
        const claim = { token: leaseToken, worker: presence.id, nowMs, mostSwitches: MOST_SWITCHES };
        const asked = {
          provider: provider.name,
          upstream: identityOf(provider),
          isPaid: mayBePaidTwice(provider),
        };
        const which = { which: plan.which, limit: plan.permits.length };
        const items = await tx.items.claim(id, { ...claim, ...asked, ...which });
        claimed.set(
          plan,
          items.map((item) => ({ ...item, leaseToken })),
        );
        if (items.length > 0) await tx.batches.serve(id);
        if (status === "queued" && (await startIn(tx, id, nowMs))) started.push(id);
      }
      return { claimed, started };
    });
    for (const { batch } of plans) batch.status = "running";
    for (const batchId of started) feed.publish({ type: "batch", batchId, status: "running" });
    return claimed;
  }

  /**
   * Returns how many items may be claimed for each provider. A free provider gets as many more as it has slots, so that no
   * slot waits until the next claim is durable. A paid provider gets none ahead: a lease there means that the request may
   * have been billed.
   */
  #free(): Map<ItemProvider, number> {
    const free = new Map<ItemProvider, number>();
    for (const provider of this.#providers) {
      const { concurrency } = provider;
      const requests = [...this.#inFlight].filter(({ offer }) => offer.provider === provider);
      const storing = requests.filter(({ state }) => state === "answered");
      const mostStoring = isPaid(provider) ? concurrency : Math.max(concurrency, FEW_STORING);
      const storingBytes = storing.reduce((sum, { bytes }) => sum + bytes, 0);
      if (storing.length > mostStoring || storingBytes > MOST_STORING_BYTES) continue;
      const atOnce = this.#deps.health.atOnce(provider);
      const ahead = isPaid(provider) || atOnce < concurrency ? 0 : concurrency;
      const count = atOnce + ahead - (requests.length - storing.length);
      if (count > 0 && count >= ahead / 2) free.set(provider, count);
    }
    return free;
  }

  /** The time that decides which items are due. */
  get #nowMs(): number {
    return Math.max(this.#deps.clock.nowMs(), this.#reachedMs);
  }

  /** Called when all items are claimed that are due. */
  async #sleepUntilDue(): Promise<void> {
    const { stores, clock } = this.#deps;
    this.#reachedMs = 0;
    const nowMs = clock.nowMs();
    // An item may have become due since the search.
    const afterMs = Math.min(this.#searchedMs, nowMs);
    const itemMs = (await stores.read.items.nextDueMs(afterMs)) ?? Number.POSITIVE_INFINITY;
    const dueMs = Math.min(itemMs, this.#turns.againMs);
    // A timer that is set after the stop has begun would keep the process alive.
    if (dueMs === Number.POSITIVE_INFINITY || this.#stopping.signal.aborted) return;
    const goOn = () => {
      if (dueMs === itemMs) this.#reachedMs = itemMs;
      void this.#fill();
    };
    this.#sleeping = new AbortController();
    const sleepMs = Math.max(0, Math.min(LONGEST_SLEEP_MS, dueMs - nowMs));
    clock.sleep(sleepMs, this.#sleeping.signal).then(goOn, () => {});
  }

  // Make, record, next.

  /** `startedAt`: when its claim began, by `performance.now()`. */
  #start({ batch, offer, which }: Plan, permit: Permit, item: LeasedItem, startedAt: number): void {
    const controller = new AbortController();
    const facts = { state: "waiting", isSent: false, bytes: 0 } as const;
    // An item that may not change its provider any more stays with the last one.
    const hasOther = which !== "any" && item.switches < MOST_SWITCHES;
    const request: ItemRequest = { batch, item, offer, permit, controller, hasOther, ...facts };
    this.#inFlight.add(request);
    const ids = { "imgbatch.batch.id": batch.id, "imgbatch.item.id": item.id };
    const claimAndRun = async () => {
      await tracer.span("claim", ids, async () => {}, { startedAt });
      await this.#run(request);
    };
    // One claim takes items of several batches, and outlives the request that woke it: each item has a trace of its own.
    const work = tracer.span("item", ids, claimAndRun, { parent: null, startedAt });
    const run = work.finally(() => {
      this.#inFlight.delete(request);
      // Next: another item; without one, there may be more to do for the batch.
      if (this.#isIdle(batch.id)) this.#events.onBatchIdle(batch.id);
      void this.#fill();
    });
    this.#runs.set(request, run);
    this.#tasks.track(run);
  }

  async #run(request: ItemRequest): Promise<void> {
    // Make: in a slot, as soon as there is one. The slot is free again when the answer has come.
    const onAnswered = (bytes: number) => {
      if (request.state === "answered") return;
      Object.assign(request, { state: "answered", bytes });
      void this.#fill();
    };
    const asked = await makeItem(this.#deps, request, {
      maySend: () => this.#maySend(request),
      onAnswered,
    });
    onAnswered(0);
    // Record: the result is durable before the batch goes on.
    const status = await recordItem(this.#deps, request, asked);
    tracer.note({ "imgbatch.item.outcome": status });
    if (asked.kind === "made") await asked.made.discard?.();
    if (status === "lost") this.#mayDiffer = true;
    else if (status !== "retry") {
      const { batchId, customId } = request.item;
      this.#deps.feed.publish({ type: "item", batchId, customId, status });
    }
  }

  /** Whether an item may still be sent: much can happen between its claim and its request. */
  #maySend({ batch, offer, permit }: ItemRequest): boolean {
    if (!this.#events.mayBegin(batch.id)) return false;
    return permit.isProbe || !this.#deps.health.blockOf(offer.provider, offer.executedModel);
  }

  /**
   * Aborts the requests for items whose lease this process does not hold any more, and drops its leases at which nothing
   * works. No claim may be under way.
   */
  async #compareLeases(): Promise<void> {
    const { stores, presence } = this.#deps;
    this.#mayDiffer = false;
    const requests = [...this.#inFlight];
    const leases = await stores.read.items.leasesOf(presence.id);
    const held = new Map(leases.map(({ itemId, leaseToken }) => [itemId, leaseToken]));
    for (const { item, controller, state } of requests)
      if (state !== "answered" && held.get(item.id) !== item.leaseToken) controller.abort();
    const stale = leases.filter(({ itemId }) => !requests.some(({ item }) => item.id === itemId));
    if (stale.length === 0) return;
    await stores.write(async (tx) => {
      await tx.lock("batch", ...new Set(stale.map(({ batchId }) => batchId)));
      await tx.items.dropLeases(stale);
    });
  }

  #isIdle(batchId: string): boolean {
    return ![...this.#inFlight].some(({ batch }) => batch.id === batchId);
  }

  // The pool as the scheduler uses it.

  get load(): PoolLoad {
    const running = [...this.#inFlight].filter(({ state }) => state === "unsent" || state === "sent");
    const paid = running.filter(({ state, offer }) => state === "sent" && isPaid(offer.provider)).length;
    const slots = this.#providers.reduce((sum, { concurrency }) => sum + concurrency, 0);
    return { running: running.length, paid, slots };
  }

  /** Cancels the requests that wait for a slot or for the rate of an upstream and must not be sent any more. */
  wake(): void {
    for (const request of this.#inFlight) {
      const isUnsent = request.state === "unsent" && request.offer.provider.upstream !== undefined;
      if ((isUnsent || request.state === "waiting") && !this.#maySend(request)) request.controller.abort();
    }
    void this.#fill();
  }

  async poll(): Promise<void> {
    this.#mayDiffer = true;
    this.wake();
  }

  reset(): void {
    this.#turns.forgetAll();
    for (const { controller } of this.#inFlight) controller.abort();
  }

  remove(batchId: string): void {
    this.#turns.forget(batchId);
  }

  async settle(batchId: string): Promise<void> {
    const paid = [...this.#inFlight].filter(
      ({ batch, offer }) => batch.id === batchId && isPaid(offer.provider),
    );
    await Promise.all(paid.map((request) => this.#runs.get(request)));
  }

  async abort(batchId: string): Promise<void> {
    const cancelled = new ProviderError("CANCELLED", "The batch was cancelled.", { source: "service" });
    for (const { batch, controller } of this.#inFlight) if (batch.id === batchId) controller.abort(cancelled);
    this.remove(batchId);
  }

  async stop(graceMs: number, isAbandoned = false): Promise<void> {
    const { clock, log } = this.#deps;
    this.#stopping.abort();
    this.#stopListening();
    this.#sleeping.abort();
    this.wake();
    await this.#fill();
    const idle = this.#tasks.idle();
    const grace = new AbortController();
    void idle.then(() => grace.abort());
    await clock.sleep(graceMs, grace.signal).catch(() => {});
    // A known task is asked for again after the next start.
    for (const request of this.#inFlight) {
      const { item, offer, controller } = request;
      request.endsWithTask = true;
      if (isAbandoned || !isPaid(offer.provider) || item.task !== null) controller.abort();
    }
    const paid = [...this.#inFlight].filter(({ controller }) => !controller.signal.aborted).length;
    if (paid > 0) log.info("waiting for requests that are paid", { paid });
    await idle;
  }
}
