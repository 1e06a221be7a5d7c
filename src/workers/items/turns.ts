import type { Waiting } from "../../contract/waiting.ts";
import { needsOf } from "../../domain/batches/create-batch.ts";
import { startIn } from "../../domain/batches/lifecycle.ts";
import type { Block, Ticket } from "../../domain/health/provider-health.ts";
import { noteOutage, waitingFor } from "../../domain/health/waiting.ts";
import type { Offer } from "../../domain/models.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { Repositories } from "../../domain/ports/stores.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { WorkerDeps } from "../deps.ts";
import { type PoolEvents, TROUBLE_DELAY_MS } from "../worker-pool.ts";

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
export interface Plan extends Pick<ItemBatch, "batch"> {
  offer: Offer<ItemProvider>;
  tickets: Ticket[];
  which: Parameters<Repositories["items"]["claim"]>[1]["which"];
}

/** Offers for which a claim found no more items. */
type Without = ReadonlySet<Offer<ItemProvider>>;

/** Decides which items are claimed next, and for which provider. While none of its providers may be asked, a batch waits. */
export class Turns {
  readonly #deps: WorkerDeps;
  readonly #events: PoolEvents & { isIdle(batchId: string): boolean };
  readonly #known = new Map<string, ItemBatch>();
  /** When the first of the waits ends that the last plan has met, in ms since 1970. */
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
      for (const { tickets } of plans) for (const ticket of tickets) ticket.dropped();
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
    const able = offers.forBatch(batch, await needsOf(stores.read, batchId));
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
      const ticket = health.begin(provider, offer.executedModel);
      if (!ticket) continue;
      if (left > 1) free.set(provider, left - 1);
      else free.delete(provider);
      const which = available.length === 1 ? "any" : isFirst ? "not-failed-here" : "failed-elsewhere";
      const plan = plans.find((each) => each.offer === offer);
      if (plan) plan.tickets.push(ticket);
      else plans.push({ batch, offer, which, tickets: [ticket] });
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

  /** Forgets batches when too many are known. To record again why each of the others waits would be a write for each. */
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
