import type {
  AccountRecord,
  ApiKeyRecord,
  BatchRecord,
  BudgetRecord,
  IdempotencyRecord,
  KeyedRequestRecord,
  LedgerEntry,
  LinkedImageRecord,
  NewReference,
  OutputRecord,
  ProviderCalls,
  RealtimeHoldRecord,
  ReferenceRecord,
  RetentionTime,
  SpentRecord,
  UsageRecord,
} from "../records.ts";
import type { BatchRepository, ItemRepository, UpstreamJobRepository } from "./batches.ts";

/** Rows that break a rule which must always hold, each with its problems in words. */
type BrokenRows = Promise<{ id: string; problems: string[] }[]>;

/** What a check of the whole database reads. */
interface AuditRepository {
  /** How many accounts and batches there are, and the number of the newest batch; 0 without any. Large tables are read in windows of these numbers. */
  extent(): Promise<{ accounts: number; batches: number; lastSeq: number }>;
  /** Accounts, by their names, that differ from their entries and from what is held for unfinished work. */
  accounts(): BrokenRows;
  /** Real-time requests whose entries, holds and usage records differ. */
  requests(): BrokenRows;
  /** Batches of a window that differ from their entries, items and events. `steps` are the allowed ones of a history, as `queued>running`. */
  batches(steps: readonly string[], window: SeqWindow): BrokenRows;
  /** The successful items of a window that have fewer outputs than images, although nobody has deleted them. */
  lostOutputs(window: SeqWindow): Promise<{ batchId: string; customId: string; lost: number }[]>;
  /** The outputs of the batches of a window that are not `output_deleted`, in no order. */
  keptOutputs(window: SeqWindow): Promise<OutputRecord[]>;
}

interface SeqWindow {
  afterSeq: number;
  toSeq: number;
}

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
  budgets: BudgetRepository;
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
  providerCalls: ProviderCallsRepository;
  files: FileRepository;
  linkedImages: LinkedImageRepository;
  timedSecrets: TimedSecretRepository;
  uploads: UploadRepository;
  requestCounts: RequestCountRepository;
  workers: WorkerRepository;
  audit: AuditRepository;
  /** Writes existing values again: a transaction that writes nothing would not touch the disk. */
  touch(): Promise<void>;
}

interface AccountRepository {
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

interface KeyRepository {
  insert(key: ApiKeyRecord & { sha256: string }): Promise<void>;
  bySha256(sha256: string): Promise<ApiKeyRecord | null>;
  byId(id: string): Promise<ApiKeyRecord | null>;
  list(): Promise<ApiKeyRecord[]>;
  setDisabled(id: string, atMs: number): Promise<void>;
  setEnabled(id: string, atMs: number): Promise<void>;
}

interface LedgerRepository {
  /** `isNew` is false when an entry with this request id exists already; then nothing changes. */
  append(entry: Omit<LedgerEntry, "seq">): Promise<{ isNew: boolean }>;
  byRequestId(requestId: string): Promise<LedgerEntry | null>;
  list(filter: { accountId?: string; batchIds?: readonly string[] }): Promise<LedgerEntry[]>;
  /** The newest first: those before the entry `beforeSeq` (default: all), without the first `offset` (default 0) of them. */
  page(filter: {
    accountIds: readonly string[];
    beforeSeq?: number | undefined;
    offset?: number;
    limit: number;
  }): Promise<LedgerEntry[]>;
  /** The sum of the balance changes of an account behind the entry `seq`. */
  changeAfter(accountId: string, seq: number): Promise<number>;
}

interface BudgetRepository {
  /** In a transaction, no other one reads them until it ends: what they allow is spent by one at a time. */
  list(): Promise<BudgetRecord[]>;
  put(budget: BudgetRecord): Promise<void>;
  remove(scope: string): Promise<void>;
  /** What was captured and charged in real money in a time. */
  spent(time: { fromMs: number; beforeMs: number }): Promise<SpentRecord[]>;
  /** What open holds of batches and real-time requests keep of real money now. */
  held(): Promise<SpentRecord[]>;
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

interface OutputRepository {
  insertMany(outputs: readonly OutputRecord[]): Promise<void>;
  /** In request order, then by image index. */
  ofBatch(batchId: string): Promise<OutputRecord[]>;
  ofItem(itemId: number): Promise<OutputRecord[]>;
  /** By image index. */
  ofItems(itemIds: readonly number[]): Promise<OutputRecord[]>;
  removeOfItem(itemId: number): Promise<void>;
  setEntryNames(names: readonly { itemId: number; imageIndex: number; entryName: string }[]): Promise<void>;
}

interface ReferenceRepository {
  insertMany(batchId: string, references: readonly NewReference[]): Promise<void>;
  /** The mask of an item of the request (`sourceIndex`), if it has one, and its references in their order. */
  ofSource(batchId: string, sourceIndex: number): Promise<ReferenceRecord[]>;
  /** The references of several items of the request, without masks. */
  ofSources(batchId: string, sourceIndexes: readonly number[]): Promise<NewReference[]>;
  /** How many references each item of the request (`sourceIndex`) has; those without any are left out. */
  countBySource(batchId: string): Promise<ReadonlyMap<number, number>>;
}

interface IdempotencyRepository {
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

interface RealtimeHoldRepository {
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

interface KeyedRequestRepository {
  find(apiKeyId: string, key: string): Promise<KeyedRequestRecord | null>;
  /** Inserts the record, or replaces the one with the same key. */
  put(record: KeyedRequestRecord): Promise<void>;
  /** Does nothing when another run has the key by now. */
  remove(record: Pick<KeyedRequestRecord, "apiKeyId" | "key" | "realtimeId">): Promise<void>;
  /** Records that expire by `nowMs`, the earliest first. */
  due(nowMs: number, limit: number): Promise<KeyedRequestRecord[]>;
  /** The record of the run with this id; null without one. Reads all records. */
  ofRun(realtimeId: string): Promise<KeyedRequestRecord | null>;
  /** Records whose answer has a body. */
  answered(): Promise<KeyedRequestRecord[]>;
}

interface LinkedImageRepository {
  insert(image: LinkedImageRecord): Promise<void>;
  /** Also finds one that has expired. */
  find(id: string): Promise<LinkedImageRecord | null>;
  /** Those that expire by `nowMs`, in the order in which they were made, behind the one with the number `afterSeq`. */
  due(
    nowMs: number,
    page: { afterSeq: number; limit: number },
  ): Promise<(LinkedImageRecord & { seq: number })[]>;
  remove(id: string): Promise<void>;
}

/** The images of a model that a key paid for on a day, from one of its accounts. */
interface DayUsage {
  accountId: string;
  /** The beginning of the day, in UTC. */
  dayMs: number;
  /** The requested model. */
  model: string;
  imageCount: number;
  amountMicroUsd: number;
}

interface UsageRepository {
  insertMany(records: readonly UsageRecord[]): Promise<void>;
  /** In the order in which they were written. */
  list(): Promise<UsageRecord[]>;
  /**
   * The images that a key paid for, by day (UTC) and model, oldest first: images of batches on the day when they were settled, and of
   * real-time requests. `accountIds`: those that have paid for the key.
   */
  byDay(filter: {
    apiKeyId: string;
    accountIds: readonly string[];
    fromMs: number;
    beforeMs: number;
  }): Promise<DayUsage[]>;
  count(): Promise<number>;
}

interface ProviderCallsRepository {
  /** Adds to the sums of the stretch of time that begins at `fromMs`. */
  add(fromMs: number, calls: ProviderCalls): Promise<void>;
  /** The sums of each day (UTC), provider and model, of stretches that begin in the time. Oldest first. */
  list(time: { fromMs?: number; beforeMs?: number }): Promise<(ProviderCalls & { dayMs: number })[]>;
}

interface RetentionTimeRepository {
  /** Null before the first look at the clock. */
  read(): Promise<RetentionTime | null>;
  write(time: RetentionTime): Promise<void>;
}

/** A secret that stands for something of a key for a time, where several processes take requests. */
export interface TimedSecretRecord {
  /** SHA-256 of the secret, as lower-case hexadecimal digits: whoever reads the database learns no secret. */
  id: string;
  /** The purpose of the secret. */
  kind: "code" | "session" | "ticket";
  apiKeyId: string;
  batchId: string | null;
  expiresAtMs: number;
}

interface TimedSecretRepository {
  insert(secret: TimedSecretRecord): Promise<void>;
  /** Also finds one that has expired. */
  find(id: string): Promise<TimedSecretRecord | null>;
  /** Removes the record and returns it, to one caller alone; null when there is none. */
  take(id: string): Promise<TimedSecretRecord | null>;
  /** Those of a kind and key, the first to expire first. */
  ofKey(kind: TimedSecretRecord["kind"], apiKeyId: string): Promise<TimedSecretRecord[]>;
  removeExpired(nowMs: number): Promise<void>;
}

/** An unfinished upload, where several processes take its chunks; a finished one, for a client that lost the answer. */
export interface UploadRecord {
  /** SHA-256 of the id that the client has: whoever reads the database cannot go on with the upload. */
  id: string;
  apiKeyId: string;
  facts: FileFacts;
  announcedBytes: number | null;
  /** The bytes of the chunks that are stored. */
  receivedBytes: number;
  /** The blobs with the chunks, in their order. */
  parts: readonly string[];
  /** The id of the file that it has become; null before. */
  fileId: string | null;
  touchedAtMs: number;
}

interface UploadRepository {
  insert(upload: UploadRecord): Promise<void>;
  find(id: string): Promise<UploadRecord | null>;
  /** Returns the uploads of a key that are not finished. */
  openOfKey(apiKeyId: string): Promise<UploadRecord[]>;
  /** Changes an upload that is no file yet, if it still has `receivedBytes`. */
  change(
    upload: Pick<UploadRecord, "id" | "receivedBytes">,
    change: Partial<Pick<UploadRecord, "receivedBytes" | "parts" | "fileId" | "touchedAtMs">>,
  ): Promise<{ isChanged: boolean }>;
  /** Those that nobody has used since the time. */
  idleSince(ms: number): Promise<UploadRecord[]>;
  remove(id: string): Promise<void>;
}

/** How many real-time requests of a key began in each second, over all processes. */
interface RequestCountRepository {
  /** Adds a request that begins in this second since 1970, and forgets those before `oldestSecond`. */
  add(apiKeyId: string, second: number, oldestSecond: number): Promise<void>;
  /** The requests from a second on, and the first second that has one. */
  since(apiKeyId: string, second: number): Promise<{ count: number; firstSecond: number | null }>;
}

/** A file that a key has uploaded to the vendor's API, or to OpenAI's. */
export interface FileRecord {
  /** Unique among the files of the key: lower-case letters, digits and dashes, 40 at most. */
  id: string;
  apiKeyId: string;
  displayName: string | null;
  /** As the caller declared it: any text. */
  mimeType: string;
  /** Its purpose, in the words of OpenAI's clients; null when the caller said nothing. */
  purpose: string | null;
  sizeBytes: number;
  /** Lower-case hexadecimal. */
  sha256: string;
  blobKey: string;
  createdAtMs: number;
  /** From then on nobody sees the file. 0: it was deleted. The sweep removes it. */
  expiresAtMs: number;
}

interface FileRepository {
  insert(file: FileRecord): Promise<void>;
  /** Also finds a file that has expired. */
  find(apiKeyId: string, id: string): Promise<(FileRecord & { seq: number }) | null>;
  /** The files of a key that expire after `nowMs`, in this order of being stored, after the one with the number `afterSeq`. */
  page(filter: {
    apiKeyId: string;
    nowMs: number;
    order: "oldest-first" | "newest-first";
    afterSeq?: number;
    purpose?: string;
    limit: number;
  }): Promise<(FileRecord & { seq: number })[]>;
  /** The bytes of the files of a key that expire after `nowMs`. */
  bytesOf(apiKeyId: string, nowMs: number): Promise<number>;
  /** Files that expire by `nowMs`, in the order in which they were stored, behind the one with the number `afterSeq`. */
  due(nowMs: number, page: { afterSeq: number; limit: number }): Promise<(FileRecord & { seq: number })[]>;
  setExpiry(blobKey: string, expiresAtMs: number): Promise<void>;
  remove(blobKey: string): Promise<void>;
  blobKeys(): Promise<string[]>;
}

/** The caller's description of a file. */
export interface FileFacts {
  /** Null: the service makes one. */
  id: string | null;
  displayName: string | null;
  mimeType: string;
  /** Default: the caller said nothing. */
  purpose?: string;
  /** How long the file is kept, in ms. */
  keptMs?: number;
}

/** `api`: takes requests. `worker`: makes images. `all`: both. */
type WorkerRole = "all" | "api" | "worker";

/**
 * A process that takes part in the work on a database. It counts as alive as long as its record exists: whatever names a
 * worker without a record is free.
 */
export interface WorkerRecord {
  id: string;
  role: WorkerRole;
  /** The version of the program. */
  version: string;
  /** The names of the providers with which it makes the images of batches. */
  providers: readonly string[];
  /** Whether somebody has asked it to begin no work. */
  isPaused: boolean;
}

/** Times are those of the database's clock, which all processes share. */
interface WorkerRepository {
  /** The record counts as seen now. */
  insert(worker: WorkerRecord): Promise<void>;
  /**
   * Notes that the worker was seen now. `isAlive` is false when it has no record any more. `wasAway`: it was seen for the
   * last time more than `pauseMs` ago, or later than now.
   */
  heartbeat(id: string, pauseMs: number): Promise<{ isAlive: boolean; wasAway: boolean }>;
  /** Whether the worker has a record. */
  isAlive(id: string): Promise<{ isAlive: boolean }>;
  list(): Promise<WorkerRecord[]>;
  /** How long ago a worker that makes images was seen last; null when there is none. */
  silenceMs(): Promise<number | null>;
  /** Removes the workers that were seen for the last time more than `termMs` before this one. Returns how many. */
  removeSilent(id: string, termMs: number): Promise<number>;
  remove(id: string): Promise<void>;
  removeAll(): Promise<void>;
  /** Asks all workers to begin no work, or to begin work again. */
  setPaused(isPaused: boolean): Promise<void>;
}
