import type { Waiting } from "../../contract/waiting.ts";
import { needsOf } from "../../domain/batches/create-batch.ts";
import type { LeasedItem } from "../../domain/batches/finish-item.ts";
import type { Ticket } from "../../domain/health/provider-health.ts";
import { noteOutage, waitingFor } from "../../domain/health/waiting.ts";
import { isPaid, type Offer } from "../../domain/models.ts";
import type { ItemClaim } from "../../domain/ports/batches.ts";
import type { ItemProvider } from "../../domain/ports/image-provider.ts";
import type { BatchRecord } from "../../domain/records.ts";
import type { WorkerDeps } from "../deps.ts";

/** A batch whose items are being made. */
export interface ItemBatch {
  batch: BatchRecord;
  /** The providers that may make its items, in their order; null until they are known. */
  offers: readonly Offer<ItemProvider>[] | null;
  /** False when it is known that none of its items has any. */
  hasReferences: boolean;
  /** The providers at which it may have an item to start. */
  readyAt: Set<ItemProvider>;
  /** The requests for its items. */
  requests: Set<ItemRequest>;
  /** Whether none of its items is left to claim. Only an item that is given back changes that. */
  isAllClaimed: boolean;
  /** Ends the wait for an item whose time has not come, or for a provider. */
  pause: AbortController | null;
  /** A due time that was waited for. It counts as reached even when the wall clock was set back meanwhile. */
  waitedForMs: number;
  /** While it is held, none of its items is started. */
  isHeld: boolean;
  /** Why the last request could not be sent; null when it could. */
  unreachable: string | null;
  /** Why none of its items can be made now; null while they can. */
  waiting: Waiting | null;
}

/** One item with the provider that is asked for it. */
export interface ItemWork {
  batch: BatchRecord;
  item: LeasedItem;
  offer: Offer<ItemProvider>;
  ticket: Ticket;
  /** False when there are none to read for it. */
  hasReferences: boolean;
}

/** A request from its claim until its result is recorded. */
export interface ItemRequest {
  active: ItemBatch;
  work: ItemWork;
  controller: AbortController;
  /**
   * `waiting`: it has no slot. `unsent`: nothing has left for the provider. `sent`: it may be paid. `answered`: its slot is
   * free, and its result is being recorded.
   */
  state: "waiting" | "unsent" | "sent" | "answered";
  /** Whether anything has left for the provider. */
  isSent: boolean;
  /** The size of its images once it is answered. */
  bytes: number;
}

export function itemBatch(batch: BatchRecord): ItemBatch {
  return {
    batch,
    offers: null,
    hasReferences: true,
    readyAt: new Set(),
    requests: new Set(),
    isAllClaimed: false,
    pause: null,
    waitedForMs: 0,
    isHeld: false,
    unreachable: null,
    waiting: null,
  };
}

/** Returns the providers that may make the items of a batch, in their order, and whether its items have references. */
export async function offersFor(
  { stores, offers }: WorkerDeps,
  batch: BatchRecord,
): Promise<{ offers: Offer<ItemProvider>[]; hasReferences: boolean }> {
  const needs = await needsOf(stores.read, batch.id);
  const all = offers.forBatch(batch, needs);
  return {
    offers: all.filter((offer): offer is Offer<ItemProvider> => offer.provider.kind === "item"),
    hasReferences: needs.references > 0,
  };
}

/** Returns those of a batch's providers that may be asked now. */
export function availableOffers({ health }: WorkerDeps, { offers }: ItemBatch): Offer<ItemProvider>[] {
  return (offers ?? []).filter(({ provider, executedModel }) => !health.blockOf(provider, executedModel));
}

/**
 * Records that a batch waits because none of its providers may be asked. Returns when to check again, in ms since 1970,
 * or "available" when one may be asked after all. After too long a wait the pending items fail, and null is returned.
 */
export async function waitForProvider(
  { stores, health, clock, outageMs, presence }: WorkerDeps,
  active: ItemBatch,
): Promise<number | "available" | null> {
  const { batch } = active;
  const blocks = (active.offers ?? []).map((each) => health.blockOf(each.provider, each.executedModel));
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
    const { sinceMs, isGivenUp } = await stores.write(async (tx) => {
      const facts = { batchId: batch.id, workerId: presence.id, nowMs, outageMs, waiting };
      const { sinceMs, isOver } = await noteOutage(tx, facts);
      const isGivenUp = isOver && mayGiveUp && active.requests.size === 0;
      if (isGivenUp) {
        const message = `The upstream could not be used for too long. ${waiting.message}`;
        const error = { code: "PROVIDER_ITEM_FAILED", message, source: "provider" } as const;
        const fail = await tx.items.failPending(batch.id, error, nowMs, presence.id);
        await tx.batches.addCounts({ id: batch.id, success: 0, fail });
      } else if (isNew) await tx.items.resetSwitches(batch.id);
      return { sinceMs, isGivenUp };
    });
    if (isGivenUp) return null;
    batch.waitingSinceMs = sinceMs;
  }
  return Math.min(
    mayGiveUp ? (batch.waitingSinceMs ?? nowMs) + outageMs : Number.POSITIVE_INFINITY,
    waiting.untilMs ?? Number.POSITIVE_INFINITY,
  );
}

/** How often an item may move to another provider. */
const MOST_SWITCHES = 2;

/** The permission to ask a provider for an item of a batch. */
export interface PlannedClaim {
  active: ItemBatch;
  offer: Offer<ItemProvider>;
  ticket: Ticket;
  which: ItemClaim["which"];
}

/** Returns null when the provider cannot be asked for the batch now. */
export function planClaim(deps: WorkerDeps, active: ItemBatch, provider: ItemProvider): PlannedClaim | null {
  const available = availableOffers(deps, active);
  const offer = available.find((each) => each.provider === provider);
  const ticket = offer && deps.health.begin(provider, offer.executedModel);
  if (!offer || !ticket) return null;
  const which =
    available.length === 1 ? "any" : offer === available[0] ? "not-failed-here" : "failed-elsewhere";
  return { active, offer, ticket, which };
}

/** Claims an item for each of the plans, all in one transaction. Null where the batch has no item for the provider. */
export async function claimItems(
  deps: WorkerDeps,
  plans: readonly PlannedClaim[],
  token: string,
): Promise<(ItemWork | null)[]> {
  let claimed = new Map<ItemBatch, LeasedItem[]>();
  const works: (ItemWork | null)[] = [];
  try {
    claimed = await claimAll(deps, plans, token);
  } finally {
    for (const { active, offer, ticket } of plans) {
      const item = claimed.get(active)?.shift();
      const { batch, hasReferences } = active;
      works.push(item ? { batch, item, offer, ticket, hasReferences } : null);
      if (!item) ticket.dropped();
    }
  }
  return works;
}

/** Claims for each batch as many items as it has plans. */
function claimAll(
  { stores, clock, presence }: WorkerDeps,
  plans: readonly PlannedClaim[],
  token: string,
): Promise<Map<ItemBatch, LeasedItem[]>> {
  const nowMs = clock.nowMs();
  const ofBatches = new Map<ItemBatch, PlannedClaim[]>();
  for (const plan of plans) ofBatches.set(plan.active, [...(ofBatches.get(plan.active) ?? []), plan]);
  return stores.write(async (tx) => {
    const claimed = new Map<ItemBatch, LeasedItem[]>();
    for (const [active, [plan, ...others]] of ofBatches) {
      if (!plan) continue;
      const { provider } = plan.offer;
      const items = await tx.items.claim(active.batch.id, {
        token,
        worker: presence.id,
        nowMs: Math.max(nowMs, active.waitedForMs),
        provider: provider.name,
        isPaid: isPaid(provider),
        which: plan.which,
        mostSwitches: MOST_SWITCHES,
        limit: 1 + others.length,
      });
      claimed.set(
        active,
        items.map((item) => ({ ...item, leaseToken: token })),
      );
    }
    return claimed;
  });
}

/**
 * Drops the leases of this process on items of a batch at which nothing works: giving one back has failed, or a claim was
 * stored although it seemed to fail. `claiming`: the tokens of the claims that are being made. Returns how many there were.
 */
export async function dropStale(
  { stores, presence }: WorkerDeps,
  { batch, requests }: ItemBatch,
  claiming: ReadonlySet<string>,
): Promise<number> {
  const leases = await stores.read.items.leasesOf(presence.id);
  // Only now: whatever begins after the reading has a token that was not read.
  const active = new Set([...requests].map(({ work }) => work.item.id));
  const stale = leases.filter(
    ({ batchId, itemId, leaseToken }) =>
      batchId === batch.id && !active.has(itemId) && !claiming.has(leaseToken),
  );
  if (stale.length === 0) return 0;
  return stores.write(async (tx) => {
    await tx.lock("batch", batch.id);
    return tx.items.dropLeases(stale);
  });
}
