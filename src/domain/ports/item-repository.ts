import type { AspectRatio, SizeTier } from "../../contract/image-formats.ts";
import type { ItemError, ItemStatus } from "../../contract/statuses.ts";
import type { BatchRecord, ItemRecord, MaybePaid, PriceSnapshot } from "../records.ts";
import type { ItemTerms } from "./item-terms.ts";

/**
 * `terms` defaults to those of the batch. An item with an error has failed before anything was asked. `notBeforeMs`: when
 * it may be tried first; default: at once.
 */
export type NewItem = Pick<ItemRecord, "position" | "sourceIndex" | "outputIndex" | "customId" | "prompt"> & {
  terms?: ItemTerms;
  failed?: { error: ItemError; atMs: number };
  notBeforeMs?: number;
};

/** The cost of all items of a batch, in micro-dollars. */
interface ItemSums {
  /** The holds of all items. */
  holdMicroUsd: number;
  /** The prices of all items. */
  priceMicroUsd: number;
  /** The prices of the successful ones. */
  earnedMicroUsd: number;
}

export interface ItemPage {
  status?: ItemStatus;
  afterPosition: number;
  offset?: number;
  limit: number;
}

/** The fields of an item that lists show. To read all of them takes twice as long. */
export type ListedItem = Pick<
  ItemRecord,
  | "id"
  | "position"
  | "sourceIndex"
  | "customId"
  | "prompt"
  | "status"
  | "mimeType"
  | "imageCount"
  | "error"
  | "modelVersion"
  | "provider"
  | "maybePaid"
  | "seed"
  | "notes"
  | "usage"
  | "priceMicroUsd"
>;

export interface ItemClaim {
  /** Together with the item it proves who holds the lease. */
  token: string;
  /** Who claims. */
  worker: string;
  nowMs: number;
  /** The provider that is about to be asked. */
  provider: string;
  /** Its images cost money: an item that may be paid already is marked as paid twice. */
  isPaid: boolean;
  /**
   * `not-failed-here`: items whose last failure was at another provider, or that have none. `failed-elsewhere`: only
   * items whose last failure was at another provider.
   */
  which: "any" | "not-failed-here" | "failed-elsewhere";
  /** An item that has changed the provider so often stays with the last one. */
  mostSwitches: number;
  /** The most items. */
  limit: number;
}

/** A lease that a worker holds on an item. */
interface ItemLease {
  batchId: string;
  itemId: number;
  leaseToken: string;
}

/** The outcome of an item, and the lease under which it was made. */
export interface FinishedItem
  extends Pick<
    ItemRecord,
    | "id"
    | "status"
    | "mimeType"
    | "imageCount"
    | "error"
    | "finishedAtMs"
    | "modelVersion"
    | "seed"
    | "notes"
    | "usage"
  > {
  leaseToken: string;
}

/** The items of a batch that have a status. The sums are those of items with an amount of their own. */
export interface ItemTotal {
  batchId: string;
  status: ItemStatus;
  count: number;
  priceMicroUsd: number;
  priced: number;
  holdMicroUsd: number;
  held: number;
}

export interface ItemRepository {
  insertMany(batchId: string, items: readonly NewItem[]): Promise<void>;
  byCustomId(batchId: string, customId: string): Promise<ItemRecord | null>;
  /** In request order, those after `afterPosition` (-1 for all), without the first `offset` (default 0) of them. */
  page(batchId: string, filter: ItemPage): Promise<ItemRecord[]>;
  /** The same, without the fields that no list shows. */
  listed(batchId: string, filter: ItemPage): Promise<ListedItem[]>;
  /**
   * The newest batch that makes an item of a batch again, by custom id: one of the same key and origin that came later, where
   * the item has not failed. Items without such a batch are left out.
   */
  retriesOf(
    batch: Pick<BatchRecord, "id" | "apiKeyId" | "parentBatchId">,
    customIds: readonly string[],
  ): Promise<ReadonlyMap<string, string>>;
  countByStatus(batchId: string): Promise<Record<ItemStatus, number>>;
  /** How many items are being made now, of all batches. */
  countLeased(): Promise<number>;
  /** The sums over the items of a batch. `price` is that of items without one of their own. */
  sums(batchId: string, price: Pick<PriceSnapshot, "imageMicroUsd" | "holdMicroUsd">): Promise<ItemSums>;
  /** The counts and the sums of many batches, a total for each status that items of a batch have. */
  totals(batchIds: readonly string[]): Promise<ItemTotal[]>;
  /** The tiers and ratios that the items of a batch have of their own, each pair once. An item may have one of them. */
  shapes(batchId: string): Promise<{ tier: SizeTier | null; ratio: AspectRatio | null }[]>;
  /**
   * Leases the first pending items without a lease whose time has come, and marks them as sent to the provider; none of a
   * batch that is not running. Items at which an upstream has failed come later, and those that may be paid already last.
   */
  claim(batchId: string, claim: ItemClaim): Promise<ItemRecord[]>;
  /** The items, of all batches by default, with a lease of a worker that is not alive. The leases of jobs do not count. */
  abandoned(batchId?: string): Promise<ItemRecord[]>;
  /** The leases that a worker holds on items, without those of jobs. */
  leasesOf(workerId: string): Promise<ItemLease[]>;
  /** Returns the first time after `afterMs` from which on a pending item without a lease may be tried; null without one. */
  nextDueMs(afterMs: number): Promise<number | null>;
  /**
   * Writes the outcomes of leased items whose lease is still held and that are pending. Returns these. An item must not
   * come twice under one lease.
   */
  finish<T extends FinishedItem>(items: readonly T[]): Promise<T[]>;
  /** Gives a leased item back to be tried again from `notBeforeMs` on. `attempts` is the number of failed tries. */
  giveBack(
    id: number,
    leaseToken: string,
    change: { notBeforeMs: number } & Pick<ItemRecord, "attempts" | "failedAt" | "maybePaid">,
  ): Promise<{ isOurs: boolean }>;
  /** Gives a job the next pending items of the batch without one, at most `limit`. Returns how many. */
  assignToJob(batchId: string, job: { jobId: string; provider: string; limit: number }): Promise<number>;
  /** Takes pending items from their job again. */
  releaseFromJob(ids: readonly number[]): Promise<void>;
  /** The pending items of a job, in request order. */
  ofJob(jobId: string): Promise<ItemRecord[]>;
  /** Leases the pending items of a job, also those with a lease. Returns them in request order. */
  leaseJob(jobId: string, token: string): Promise<ItemRecord[]>;
  /** Sets the mark of the pending items of a job. */
  markJob(jobId: string, maybePaid: MaybePaid): Promise<void>;
  /** Returns how many pending items of the batch belong to no job. */
  countWithoutJob(batchId: string): Promise<number>;
  /** Lets the pending items of a batch change the provider again: they have waited. */
  resetSwitches(batchId: string): Promise<void>;
  /** Turns a successful item into a failure. */
  fail(id: number, error: NonNullable<ItemRecord["error"]>): Promise<void>;
  /**
   * Fails every pending item of the batch, leased or not. With `workerId`, those stay that another worker has leased which is
   * alive. Returns how many failed.
   */
  failPending(
    batchId: string,
    error: NonNullable<ItemRecord["error"]>,
    nowMs: number,
    workerId?: string,
  ): Promise<number>;
  /** Whether another worker that is alive has a lease on an item of the batch. The leases of jobs do not count. */
  areLeasedBesides(batchId: string, workerId: string): Promise<boolean>;
  /** Drops those leases that are still held. Returns how many. */
  dropLeases(leases: readonly ItemLease[]): Promise<number>;
}
