import type { Waiting } from "../../contract/waiting.ts";
import { needsOf } from "../../domain/batches/create-batch.ts";
import { startIn } from "../../domain/batches/lifecycle.ts";
import { noteOutage, waitingFor } from "../../domain/health/waiting.ts";
import type { Offer } from "../../domain/models.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { linkSignals } from "../../kernel/signals.ts";
import type { WorkerDeps } from "../deps.ts";
import { type PoolEvents, type Tasks, TROUBLE_DELAY_MS } from "../worker-pool.ts";
import type { ItemRequest } from "./make-item.ts";

/** Upper bound of a sleep: after the clock was set back, a stored due time can lie far ahead. */
const LONGEST_SLEEP_MS = 3_600_000;
/** What is known of so many batches is kept. */
const MOST_KNOWN = 500;

/** A batch with items to make, as far as this process knows it. */
export interface ItemBatch {
  batch: BatchRecord;
  /** The providers that may make its items, in their order. */
  offers: readonly Offer<ItemProvider>[];
  /** False when it is known that none of its items has any. */
  hasReferences: boolean;
  /** The requests for its items. */
  requests: Set<ItemRequest>;
  /** The providers for which a claim found no item. An item that is given back or due changes that. */
  noneFor: Set<ItemProvider>;
  /** Why none of its items can be made now; null while they can. */
  waiting: Waiting | null;
  /** Ends the wait for a provider; null when it does not wait. */
  pause: AbortController | null;
}

/** What this process knows of the batches with items to make, and their waits: for providers, and for items that are due later. */
export class ItemBatches {
  readonly #deps: WorkerDeps;
  readonly #stopping: AbortSignal;
  readonly #tasks: Tasks;
  readonly #events: Pick<PoolEvents, "onBatchIdle"> & { onDue(): void };
  readonly #known = new Map<string, ItemBatch>();
  #sleeping = new AbortController();
  /** A due time that was waited for. It counts as reached even when the clock was set back meanwhile. */
  #waitedForMs = 0;

  /** `stopping` ends all waits, which are counted in `tasks`. `onDue` is called at the end of each. */
  constructor(
    deps: WorkerDeps,
    { stopping, tasks }: { stopping: AbortSignal; tasks: Tasks },
    events: Pick<PoolEvents, "onBatchIdle"> & { onDue(): void },
  ) {
    this.#deps = deps;
    this.#stopping = stopping;
    this.#tasks = tasks;
    this.#events = events;
  }

  /** Returns a batch of a provider that is neither ended nor moved to another one; null without one. */
  async find(batchId: string, provider: string): Promise<ItemBatch | null> {
    const known = this.#known.get(batchId);
    if (known?.batch.provider === provider) return known;
    const active = await readItemBatch(this.#deps, batchId);
    if (active) this.#known.set(batchId, active);
    return active;
  }

  /** Whether the batch was not removed since it was found. */
  has(active: ItemBatch): boolean {
    return this.#known.get(active.batch.id) === active;
  }

  /** Returns those of a batch's providers that may be asked now. Without one, it begins to wait. */
  available(active: ItemBatch): Offer<ItemProvider>[] {
    if (active.pause !== null) return [];
    const { health, presence } = this.#deps;
    const able = active.offers.filter((each) => !health.blockOf(each.provider, each.executedModel));
    if (able.length > 0) active.waiting = null;
    // Without any provider, others may make it.
    else if (active.offers.length > 0 || presence.isOurs(active.batch.provider))
      this.#tasks.track(this.#wait(active));
    return able;
  }

  async #wait(active: ItemBatch): Promise<void> {
    const { clock, log } = this.#deps;
    const { id } = active.batch;
    const pause = new AbortController();
    active.pause = pause;
    let sleepMs = 0;
    try {
      const againMs = await waitForProvider(this.#deps, active);
      if (againMs === null) this.#events.onBatchIdle(id);
      // The health of the provider reports the end of a first request after a pause.
      if (typeof againMs === "number") sleepMs = Math.max(againMs - clock.nowMs(), TROUBLE_DELAY_MS);
    } catch (error) {
      log.error("the wait of a batch could not be written; trying again", {
        batch: id,
        error: String(error),
      });
      sleepMs = TROUBLE_DELAY_MS;
    }
    const { signal, unlink } = linkSignals(pause.signal, this.#stopping);
    // A timer that is set after the stop has begun would keep the process alive.
    if (sleepMs > 0 && !signal.aborted)
      await clock.sleep(Math.min(LONGEST_SLEEP_MS, sleepMs), signal).catch(() => {});
    unlink();
    active.pause = null;
    this.#events.onDue();
  }

  /** The time that decides which items are due. */
  get nowMs(): number {
    return Math.max(this.#deps.clock.nowMs(), this.#waitedForMs);
  }

  /** Called when all items are claimed that are due. */
  async sleepUntilDue(): Promise<void> {
    const { stores, clock } = this.#deps;
    this.#waitedForMs = 0;
    const nowMs = clock.nowMs();
    const dueMs = await stores.read.items.nextDueMs(nowMs);
    if (dueMs === null || this.#stopping.aborted) return;
    const goOn = () => {
      this.#waitedForMs = dueMs;
      this.#events.onDue();
    };
    this.#sleeping = new AbortController();
    clock.sleep(Math.min(LONGEST_SLEEP_MS, dueMs - nowMs), this.#sleeping.signal).then(goOn, () => {});
  }

  endSleep(): void {
    this.#sleeping.abort();
  }

  /** Ends all waits for providers, because the health of a provider has changed. */
  endWaits(): void {
    for (const { pause } of this.#known.values()) pause?.abort();
  }

  /** Called when there may be items again at which no claim found one. */
  searchAgain(): void {
    for (const active of this.#known.values()) active.noneFor.clear();
  }

  /** Forgets batches that have nothing under way, when too many are known. */
  forgetSome(): void {
    if (this.#known.size <= MOST_KNOWN) return;
    for (const [id, { requests, pause }] of this.#known)
      if (requests.size === 0 && pause === null) this.#known.delete(id);
  }

  remove(batchId: string): void {
    this.#known.get(batchId)?.pause?.abort();
    this.#known.delete(batchId);
  }

  clear(): void {
    this.endWaits();
    this.#known.clear();
  }
}

/** Reads what must be known of a batch; null when it has ended. */
export async function readItemBatch(
  { stores, offers }: Pick<WorkerDeps, "stores" | "offers">,
  batchId: string,
): Promise<ItemBatch | null> {
  const batch = await stores.read.batches.byId(batchId);
  if (batch?.status !== "queued" && batch?.status !== "running") return null;
  const needs = await needsOf(stores.read, batchId);
  const able = offers.forBatch(batch, needs);
  return {
    batch,
    offers: able.filter((offer): offer is Offer<ItemProvider> => offer.provider.kind === "item"),
    hasReferences: needs.references > 0,
    requests: new Set(),
    noneFor: new Set(),
    waiting: null,
    pause: null,
  };
}

/**
 * Records that a batch waits because none of its providers may be asked. Returns when to check again, in ms since 1970,
 * or "available" when one may be asked after all. After too long a wait the pending items fail, and null is returned.
 */
export async function waitForProvider(
  { stores, health, clock, outageMs, presence, feed }: WorkerDeps,
  active: ItemBatch,
): Promise<number | "available" | null> {
  const { batch } = active;
  const blocks = active.offers.map((each) => health.blockOf(each.provider, each.executedModel));
  const waiting = waitingFor(blocks);
  // A pause may have ended since the last check.
  if (waiting === null) return "available";
  const isNew = active.waiting === null;
  active.waiting = waiting;
  const nowMs = clock.nowMs();
  // Its images may be paid already: a batch waits for its provider to be configured again, however long.
  const mayGiveUp = waiting.code !== "PROVIDER_NOT_CONFIGURED";
  const { waitingSinceMs } = batch;
  const mayBeOver = mayGiveUp && waitingSinceMs !== null && nowMs >= waitingSinceMs + outageMs;
  if (isNew || waitingSinceMs === null || (mayBeOver && active.requests.size === 0)) {
    const { sinceMs, isGivenUp, isStarted } = await stores.write(async (tx) => {
      // It has had its turn: what keeps it from being made is shown of a running batch.
      const isStarted = batch.status === "queued" && (await startIn(tx, batch.id, nowMs));
      const facts = { batchId: batch.id, workerId: presence.id, nowMs, outageMs, waiting };
      const { sinceMs, isOver } = await noteOutage(tx, facts);
      const isGivenUp = isOver && mayGiveUp && active.requests.size === 0;
      if (isGivenUp) {
        const message = `The upstream could not be used for too long. ${waiting.message}`;
        const error = { code: "PROVIDER_ITEM_FAILED", message, source: "provider" } as const;
        const fail = await tx.items.failPending(batch.id, error, nowMs, presence.id);
        await tx.batches.addCounts({ id: batch.id, success: 0, fail });
      } else if (isNew) await tx.items.resetSwitches(batch.id);
      return { sinceMs, isGivenUp, isStarted };
    });
    batch.status = "running";
    if (isStarted) feed.publish({ type: "batch", batchId: batch.id, status: "running" });
    if (isGivenUp) return null;
    batch.waitingSinceMs = sinceMs;
  }
  return Math.min(
    mayGiveUp ? (batch.waitingSinceMs ?? nowMs) + outageMs : Number.POSITIVE_INFINITY,
    waiting.untilMs ?? Number.POSITIVE_INFINITY,
  );
}
