import type { LeasedItem } from "../../domain/batches/finish-item.ts";
import { startIn } from "../../domain/batches/lifecycle.ts";
import type { Ticket } from "../../domain/health/provider-health.ts";
import { isPaid, type Offer } from "../../domain/models.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { Repositories } from "../../domain/ports/stores.ts";
import { coalesced } from "../../kernel/pacing.ts";
import type { WorkerDeps } from "../deps.ts";
import { type PoolEvents, type PoolLoad, Tasks, TROUBLE_DELAY_MS, type WorkerPool } from "../worker-pool.ts";
import { InFlightItems } from "./in-flight.ts";
import { type ItemBatch, ItemBatches } from "./item-batches.ts";
import { bytesOf, type ItemRequest, type ItemWork, makeItem, recordItem } from "./make-item.ts";

/** How often an item may move to another provider. */
const MOST_SWITCHES = 2;

/** The items that are to be claimed of a batch for a provider: one for each permission to ask it. */
interface Plan {
  active: ItemBatch;
  offer: Offer<ItemProvider>;
  tickets: Ticket[];
  which: Parameters<Repositories["items"]["claim"]>[1]["which"];
}

/**
 * Makes the items of batches, each in four steps: claim, make, record, next. Whose turn it is stands in the database (see
 * `BatchRepository.queues`). A batch goes to the first of its providers that may be asked. While none may, its items wait
 * and lose no try.
 */
export class ItemPool implements WorkerPool {
  readonly #deps: WorkerDeps;
  readonly #events: PoolEvents;
  readonly #inFlight: InFlightItems;
  readonly #jobProviders: ReadonlySet<string>;
  readonly #batches: ItemBatches;
  readonly #tasks = new Tasks();
  readonly #stopping = new AbortController();
  readonly #stopListening: () => void;
  readonly #fill = coalesced(() => this.#claimForFreeSlots());
  /** This process may have leases at which nothing works: a claim, or giving an item back, has seemed to fail. */
  #mayHaveStale = false;
  #isStarted = false;
  #isPaused = false;

  constructor(deps: WorkerDeps, events: PoolEvents) {
    this.#deps = deps;
    this.#events = events;
    const { providers, health, ending } = deps;
    this.#inFlight = new InFlightItems(providers.filter((each) => each.kind === "item"));
    this.#jobProviders = new Set(providers.flatMap(({ kind, name }) => (kind === "job" ? name : [])));
    const background = { stopping: this.#stopping.signal, tasks: this.#tasks };
    this.#batches = new ItemBatches(deps, background, { ...events, onDue: () => this.wake() });
    this.#stopListening = health.onChange(() => {
      this.#takeBackUnsent();
      this.#batches.endWaits();
      this.wake();
    });
    ending.addEventListener("abort", () => this.#takeBackUnsent(), { once: true });
  }

  // Claim: items for free slots.

  async #claimForFreeSlots(): Promise<void> {
    this.#batches.endSleep();
    try {
      if (this.#mayHaveStale) {
        this.#mayHaveStale = false;
        await this.#inFlight.dropStale(this.#deps);
        this.#batches.searchAgain();
      }
      this.#batches.forgetSome();
      while (this.#mayBegin && (await this.#claimSome()));
      const isAllClaimed = this.#mayBegin && this.#inFlight.free().size > 0;
      if (isAllClaimed) await this.#batches.sleepUntilDue();
    } catch (error) {
      // The database cannot be used now (disk full, say).
      this.#deps.log.error("no item could be claimed; trying again", { error: String(error) });
      this.#mayHaveStale = true;
      await this.#deps.clock.sleep(TROUBLE_DELAY_MS, this.#stopping.signal).catch(() => {});
      if (!this.#stopping.signal.aborted) void this.#fill();
    }
  }

  /** Claims items for the slots that are free, and starts them. Returns false when there was nothing to claim. */
  async #claimSome(): Promise<boolean> {
    const plans: Plan[] = [];
    let claimed = new Map<Plan, LeasedItem[]>();
    try {
      await this.#plan(plans);
      if (plans.length > 0) claimed = await this.#claim(plans);
    } finally {
      for (const plan of plans) {
        const { active, offer, tickets } = plan;
        const items = claimed.get(plan) ?? [];
        if (items.length < tickets.length) active.noneFor.add(offer.provider);
        for (const [at, ticket] of tickets.entries()) {
          const item = items[at];
          // Cancelled since the claim: the item has failed with its batch.
          if (item && this.#batches.has(active)) this.#start(active, offer, ticket, item);
          else ticket.dropped();
        }
      }
    }
    return plans.length > 0;
  }

  /** Gives each queue a slot in its turn, and each batch of it in its own, until no slot is free. */
  async #plan(plans: Plan[]): Promise<void> {
    const { batches } = this.#deps.stores.read;
    const free = this.#inFlight.free();
    const isFull = () => this.#inFlight.hasProviders && free.size === 0;
    if (isFull()) return;
    const { nowMs } = this.#batches;
    let queues = (await batches.queues()).filter(({ provider }) => !this.#jobProviders.has(provider));
    const turns = new Map<(typeof queues)[number], string[]>();
    while (queues.length > 0 && !isFull()) {
      for (const queue of queues) {
        if (isFull()) break;
        const turn = turns.get(queue) ?? (await batches.nextOf(queue, nowMs));
        turns.set(queue, turn);
        const batchId = turn.shift();
        const active = batchId === undefined ? null : await this.#batches.find(batchId, queue.provider);
        if (active && this.#planOne(plans, active, free)) turn.push(active.batch.id);
      }
      queues = queues.filter((queue) => (turns.get(queue)?.length ?? 0) > 0);
    }
  }

  /** Plans the claim of one more item of a batch, for the first of its providers. Returns false when none can be asked now. */
  #planOne(plans: Plan[], active: ItemBatch, free: Map<ItemProvider, number>): boolean {
    if (this.#events.isHeld(active.batch.id)) return false;
    const available = this.#batches.available(active);
    for (const offer of available) {
      const { provider } = offer;
      const isFirst = offer === available[0];
      if (!isFirst && active.batch.status === "queued") break;
      const left = free.get(provider);
      if (left === undefined || active.noneFor.has(provider)) continue;
      const ticket = this.#deps.health.begin(provider, offer.executedModel);
      if (!ticket) continue;
      if (left > 1) free.set(provider, left - 1);
      else free.delete(provider);
      const which = available.length === 1 ? "any" : isFirst ? "not-failed-here" : "failed-elsewhere";
      const plan = plans.find((each) => each.active === active && each.offer === offer);
      if (plan) plan.tickets.push(ticket);
      else plans.push({ active, offer, which, tickets: [ticket] });
      return true;
    }
    return false;
  }

  /** One transaction for all plans. A batch is `running` from its first claim on, also when its items are due later. */
  async #claim(plans: readonly Plan[]): Promise<Map<Plan, LeasedItem[]>> {
    const { stores, presence, feed, ids } = this.#deps;
    const { nowMs } = this.#batches;
    const leaseToken = ids.leaseToken();
    const { claimed, started } = await stores.write(async (tx) => {
      await tx.lock("batch", ...new Set(plans.map(({ active }) => active.batch.id)));
      const claimed = new Map<Plan, LeasedItem[]>();
      const started: string[] = [];
      for (const plan of plans) {
        const { id, status } = plan.active.batch;
        const { provider } = plan.offer;
        const claim = { token: leaseToken, worker: presence.id, nowMs, mostSwitches: MOST_SWITCHES };
        const asked = { provider: provider.name, isPaid: isPaid(provider), which: plan.which };
        const items = await tx.items.claim(id, { ...claim, ...asked, limit: plan.tickets.length });
        claimed.set(
          plan,
          items.map((item) => ({ ...item, leaseToken })),
        );
        if (items.length > 0) await tx.batches.serve(id);
        if (status === "queued" && (await startIn(tx, id, nowMs))) started.push(id);
      }
      return { claimed, started };
    });
    for (const { active } of plans) active.batch.status = "running";
    for (const batchId of started) feed.publish({ type: "batch", batchId, status: "running" });
    return claimed;
  }

  #start(active: ItemBatch, offer: Offer<ItemProvider>, ticket: Ticket, item: LeasedItem): void {
    const { batch, hasReferences } = active;
    const work: ItemWork = { batch, item, offer, ticket, hasReferences };
    const controller = new AbortController();
    const request: ItemRequest = { work, controller, state: "waiting", isSent: false, bytes: 0 };
    this.#inFlight.add(request);
    active.requests.add(request);
    const run = this.#run(request, active).finally(() => {
      this.#inFlight.delete(request);
      active.requests.delete(request);
      // Next: another item; without one, there may be more to do for the batch.
      if (active.requests.size === 0) this.#events.onBatchIdle(batch.id);
      void this.#fill();
    });
    this.#tasks.track(run);
  }

  async #run(request: ItemRequest, active: ItemBatch): Promise<void> {
    const { work, controller } = request;
    // Make: in a slot, as soon as there is one. The slot is free again when the answer has come.
    const onAnswered = (bytes: number) => {
      if (request.state === "answered") return;
      Object.assign(request, { state: "answered", bytes });
      void this.#fill();
    };
    const attempt = await makeItem(this.#deps, request, { maySend: () => this.#maySend(work), onAnswered });
    onAnswered(bytesOf(attempt));
    // Record: the result is durable before the batch goes on.
    const status = await recordItem(this.#deps, work, attempt, controller.signal);
    if ("images" in attempt) await attempt.discard?.();
    if (status === "retry") active.noneFor.clear();
    else if (status === "lost") this.#mayHaveStale = true;
    else {
      const { batchId, customId } = work.item;
      this.#deps.feed.publish({ type: "item", batchId, customId, status });
    }
  }

  /** Whether work may begin now: not while paused, while the service stops, or when its leases may be lost. */
  get #mayBegin(): boolean {
    const { ending, presence } = this.#deps;
    const isStopping = this.#stopping.signal.aborted || ending.aborted;
    return this.#isStarted && !this.#isPaused && !isStopping && presence.isFresh;
  }

  /** Whether an item may still be sent: much can happen between its claim and its request. */
  #maySend({ batch, offer, ticket }: ItemWork): boolean {
    if (!this.#mayBegin || this.#events.isHeld(batch.id)) return false;
    return ticket.isProbe || !this.#deps.health.blockOf(offer.provider, offer.executedModel);
  }

  #takeBackUnsent(): void {
    this.#inFlight.takeBackUnsent(({ work }) => this.#maySend(work));
  }

  // The pool as the scheduler uses it.

  get load(): PoolLoad {
    return this.#inFlight.load;
  }

  setPaused(isPaused: boolean): void {
    this.#isPaused = isPaused;
    this.#takeBackUnsent();
    this.wake();
  }

  start(): void {
    this.#isStarted = true;
    this.wake();
  }

  wake(): void {
    this.#batches.searchAgain();
    void this.#fill();
  }

  async poll(): Promise<void> {
    await this.#inFlight.abortLost(this.#deps);
    this.wake();
  }

  reset(): void {
    this.#batches.clear();
    for (const { controller } of this.#inFlight.all()) controller.abort();
  }

  hold(): void {
    this.#takeBackUnsent();
  }

  remove(batchId: string): void {
    this.#batches.remove(batchId);
  }

  async abort(batchId: string): Promise<void> {
    for (const { work, controller } of this.#inFlight.all())
      if (work.batch.id === batchId) controller.abort();
    this.remove(batchId);
  }

  async stop(graceMs: number, isAbandoned = false): Promise<void> {
    this.#stopping.abort();
    this.#stopListening();
    this.#batches.endSleep();
    this.#takeBackUnsent();
    await this.#fill();
    const idle = this.#tasks.idle();
    const grace = new AbortController();
    void idle.then(() => grace.abort());
    await this.#deps.clock.sleep(graceMs, grace.signal).catch(() => {});
    const paid = this.#inFlight.abortUnlessPaid(isAbandoned);
    if (paid > 0) this.#deps.log.info("waiting for requests that are paid", { paid });
    await idle;
  }
}
