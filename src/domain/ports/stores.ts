import type {
  AccountRecord,
  ApiKeyRecord,
  BatchRecord,
  HealthRecord,
  IdempotencyRecord,
  LedgerEntry,
  NewReference,
  OutputRecord,
  ProviderCalls,
  ReferenceRecord,
  RetentionTime,
} from "../records.ts";
import type { BatchRepository, SweepPage } from "./batch-repository.ts";
import type { FileRepository } from "./files.ts";
import type { ItemRepository } from "./item-repository.ts";
import type {
  DayUsage,
  KeyedRequestRecord,
  LinkedImageRecord,
  RealtimeHoldRecord,
  UsageFilter,
  UsageRecord,
} from "./realtime-records.ts";
import type { RequestCountRepository, TimedSecretRepository, UploadRepository } from "./shared-records.ts";
import type { UpstreamJobRepository } from "./upstream-jobs.ts";
import type { WorkerRepository } from "./workers.ts";

/**
 * The database as the domain needs it. Repositories move rows and decide nothing. A yes or no is returned inside an
 * object, so that a forgotten `await` does not compile.
 */
export interface Stores {
  /** Committed state. Reads here never block a writer. */
  readonly read: Repositories;
  /** Reads that all see the same moment. `now` rejects after the end. */
  snapshot<T>(work: (now: Repositories) => Promise<T>): Promise<T>;
  /**
   * Runs the work as one transaction, which is durable when this resolves. A throw undoes all of it. Inside, nothing
   * is awaited but calls of `tx`, one at a time: no network, no files, no `read` or `write` of the stores. Work that
   * waits for anything else is undone. `tx` rejects after the end. The work may run again from its start, after all
   * that it did was undone: it changes nothing outside of `tx`. Rejects with `StorageUnavailable` when the database
   * cannot store anything now.
   */
  write<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
}

export interface Repositories {
  accounts: AccountRepository;
  keys: KeyRepository;
  ledger: LedgerRepository;
  batches: BatchRepository;
  items: ItemRepository;
  outputs: OutputRepository;
  references: ReferenceRepository;
  idempotency: IdempotencyRepository;
  upstreamJobs: UpstreamJobRepository;
  realtimeHolds: RealtimeHoldRepository;
  keyedRequests: KeyedRequestRepository;
  usage: UsageRepository;
  retentionTime: RetentionTimeRepository;
  providerHealth: ProviderHealthRepository;
  providerCalls: ProviderCallsRepository;
  files: FileRepository;
  linkedImages: LinkedImageRepository;
  timedSecrets: TimedSecretRepository;
  uploads: UploadRepository;
  requestCounts: RequestCountRepository;
  workers: WorkerRepository;
  /** Writes existing values again: a transaction that writes nothing would not touch the disk. */
  touch(): Promise<void>;
}

export interface AccountRepository {
  /** `isPlay` defaults to false. */
  insert(account: { id: string; name: string; createdAtMs: number; isPlay?: boolean }): Promise<void>;
  setRealAccount(id: string, realAccountId: string): Promise<void>;
  byId(id: string): Promise<AccountRecord | null>;
  byName(name: string): Promise<AccountRecord | null>;
  list(): Promise<AccountRecord[]>;
  /** Adds to balance and held amount, unless the balance is not enough and would fall below zero: then nothing changes. */
  change(
    id: string,
    change: { balanceMicroUsd: number; heldMicroUsd: number },
  ): Promise<{ isEnough: boolean }>;
}

export interface KeyRepository {
  insert(key: ApiKeyRecord & { sha256: string }): Promise<void>;
  bySha256(sha256: string): Promise<ApiKeyRecord | null>;
  byId(id: string): Promise<ApiKeyRecord | null>;
  list(): Promise<ApiKeyRecord[]>;
  setDisabled(id: string, atMs: number): Promise<void>;
  setEnabled(id: string, atMs: number): Promise<void>;
}

interface LedgerPage {
  accountIds: readonly string[];
  /** Default: from the newest on. */
  beforeSeq?: number | undefined;
  offset?: number;
  limit: number;
}

export interface LedgerRepository {
  /** `isNew` is false when an entry with this request id exists already; then nothing changes. */
  append(entry: Omit<LedgerEntry, "seq">): Promise<{ isNew: boolean }>;
  byRequestId(requestId: string): Promise<LedgerEntry | null>;
  list(filter: { accountId?: string; batchIds?: readonly string[] }): Promise<LedgerEntry[]>;
  /** The newest first: those before the entry `beforeSeq`, without the first `offset` (default 0) of them. */
  page(filter: LedgerPage): Promise<LedgerEntry[]>;
  /** The sum of the balance changes of an account behind the entry `seq`. */
  changeAfter(accountId: string, seq: number): Promise<number>;
}

/**
 * The repositories inside a transaction. Other transactions may be at work at the same time: whatever a decision rests on
 * is locked before it is read. Locks are taken in the order of `LockedRow`, else two transactions wait for each other.
 */
export interface Transaction extends Omit<Repositories, "batches"> {
  batches: Omit<BatchRepository, "byId"> & {
    /** Locks the batch and reads it. */
    locked(id: string): Promise<BatchRecord | null>;
  };
  /** Keeps other transactions from changing the rows until this one ends. */
  lock(row: LockedRow, ...ids: string[]): Promise<void>;
}

/** Rows that can be locked, in the order in which to do it. A batch comes before its items. */
type LockedRow = "key" | "batch" | "account";

export interface OutputRepository {
  insertMany(outputs: readonly OutputRecord[]): Promise<void>;
  /** In request order, then by image index. */
  ofBatch(batchId: string): Promise<OutputRecord[]>;
  /** Those of many batches, in no order. */
  ofBatches(batchIds: readonly string[]): Promise<OutputRecord[]>;
  ofItem(itemId: number): Promise<OutputRecord[]>;
  /** By image index. */
  ofItems(itemIds: readonly number[]): Promise<OutputRecord[]>;
  removeOfItem(itemId: number): Promise<void>;
  setEntryNames(names: readonly { itemId: number; imageIndex: number; entryName: string }[]): Promise<void>;
}

export interface ReferenceRepository {
  insertMany(batchId: string, references: readonly NewReference[]): Promise<void>;
  /** The references of an item of the request (`sourceIndex`), in their order. */
  ofSource(batchId: string, sourceIndex: number): Promise<ReferenceRecord[]>;
  /** The same of several items of the request. */
  ofSources(batchId: string, sourceIndexes: readonly number[]): Promise<NewReference[]>;
  /** How many references each item of the request (`sourceIndex`) has; those without any are left out. */
  countBySource(batchId: string): Promise<ReadonlyMap<number, number>>;
  /** How many references the item with the most of them has; 0 in a batch without references. */
  mostOfSource(batchId: string): Promise<number>;
}

export interface IdempotencyRepository {
  find(apiKeyId: string, key: string): Promise<IdempotencyRecord | null>;
  /**
   * `isNew` is false when the key has made another batch already; then nothing changes. Waits for another transaction that
   * inserts the same key.
   */
  insert(record: IdempotencyRecord): Promise<{ isNew: boolean }>;
  /** Inserts the record in the place of the one that the key has, if any. */
  replace(record: IdempotencyRecord): Promise<void>;
  /** Removes the keys of batches whose records were deleted before the time. Returns how many. */
  removeOfRecordsDeletedBefore(ms: number): Promise<number>;
}

export interface RealtimeHoldRepository {
  insert(hold: RealtimeHoldRecord): Promise<void>;
  /** Removes the record and returns it; null when there is none. */
  remove(id: string): Promise<RealtimeHoldRecord | null>;
  /** Oldest first. */
  list(): Promise<RealtimeHoldRecord[]>;
  /** How many holds of a key belong to processes that are alive. */
  countOpen(apiKeyId: string): Promise<number>;
  /** Whether there is the hold, of a process that is alive. */
  isOpen(id: string): Promise<{ isOpen: boolean }>;
  /** Those of workers that are not alive. */
  abandoned(): Promise<RealtimeHoldRecord[]>;
}

export interface KeyedRequestRepository {
  find(apiKeyId: string, key: string): Promise<KeyedRequestRecord | null>;
  /** Inserts the record, or replaces the one with the same key. */
  put(record: KeyedRequestRecord): Promise<void>;
  /** Does nothing when another run has the key by now. */
  remove(record: Pick<KeyedRequestRecord, "apiKeyId" | "key" | "realtimeId">): Promise<void>;
  /** Records that expire by `nowMs`, the earliest first. */
  due(nowMs: number, limit: number): Promise<KeyedRequestRecord[]>;
  /** Records whose answer has a body. */
  answered(): Promise<KeyedRequestRecord[]>;
}

export interface LinkedImageRepository {
  insert(image: LinkedImageRecord): Promise<void>;
  /** Also finds one that has expired. */
  find(id: string): Promise<LinkedImageRecord | null>;
  /** Those that expire by `nowMs`, in the order in which they were made, behind the one with the number `afterSeq`. */
  due(nowMs: number, page: SweepPage): Promise<(LinkedImageRecord & { seq: number })[]>;
  remove(id: string): Promise<void>;
}

export interface UsageRepository {
  insertMany(records: readonly UsageRecord[]): Promise<void>;
  /** In the order in which they were written. */
  list(filter: { accountId?: string }): Promise<UsageRecord[]>;
  /**
   * The images that a key paid for, by day (UTC) and model, oldest first: images of batches on the day when they were settled, and of
   * real-time requests. `accountIds`: those that have paid for the key.
   */
  byDay(filter: UsageFilter): Promise<DayUsage[]>;
  count(): Promise<number>;
}

export interface ProviderHealthRepository {
  list(): Promise<HealthRecord[]>;
  /** Inserts or replaces the record of a provider and model. */
  put(record: HealthRecord): Promise<void>;
}

export interface ProviderCallsRepository {
  /** Adds to the sums of the stretch of time that begins at `fromMs`. */
  add(fromMs: number, calls: ProviderCalls): Promise<void>;
  /** The sums of each day (UTC), provider and model, of stretches that begin in the time. Oldest first. */
  list(time: { fromMs?: number; beforeMs?: number }): Promise<(ProviderCalls & { dayMs: number })[]>;
}

export interface RetentionTimeRepository {
  /** Null before the first look at the clock. */
  read(): Promise<RetentionTime | null>;
  write(time: RetentionTime): Promise<void>;
}
